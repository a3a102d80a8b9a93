"""What is removed does not come back by a read or a write that was under way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain

import pytest
from chiasm_contract.block_guard import ABSENT, USE, Outcome
from chiasm_contract.block_record import RecordKind
from chiasm_contract.block_wire import Tier as Place
from chiasm_sidecar.kv.meters import Meters
from chiasm_sidecar.kv.namespaces import Registry
from chiasm_sidecar.kv.removal import Removals
from chiasm_sidecar.kv.store import BlockStore, Reading
from chiasm_sidecar.kv.tiers.level import Level
from chiasm_sidecar.metrics import Metrics
from hypothesis import given
from hypothesis import strategies as st

from tests.sidecar.conftest import until
from tests.sidecar.kv.conftest import NAMESPACE, key, keys, record
from tests.sidecar.kv.told import Told, fail

OTHER_CONTENT = record(0, RecordKind.MEDIA_KV)


@dataclass
class Two:
    """A store with a near tier and a far one."""

    near: Told
    far: Told
    far_level: Level
    registry: Registry
    store: BlockStore

    async def read(self, *wanted: bytes) -> Reading:
        return await self.store.read(NAMESPACE, wanted, time.monotonic() + 60, 60)

    async def held(self) -> list[bytes | None]:
        """What lies under the first key, nearest first."""
        tiers = (self.near, self.far)
        return list(chain.from_iterable([await t.get_many(NAMESPACE, keys(1)) for t in tiers]))

    def settled(self) -> Callable[[], Awaitable[bool]]:
        """Whether no removal is under way and nothing waits to be written."""

        async def idle() -> bool:
            removals = self.store.remover.removals
            return removals.none_since(removals.latest) and not self.far_level.num_queued_bytes

        return idle


@asynccontextmanager
async def two_tiers(queue_bytes: int | None = None) -> AsyncIterator[Two]:
    meters, registry = Meters(Metrics("demo")), Registry()
    near, far = Told(), Told(Place.DISK)
    far_level = Level(far, meters, time.monotonic, queue_bytes=queue_bytes)
    levels = [Level(near, meters, time.monotonic), far_level]
    store = BlockStore(levels, registry, meters, pauses_seconds=(0.01,) * 3)
    try:
        yield Two(near, far, far_level, registry, store)
    finally:
        await store.close()


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    async with two_tiers() as both:
        yield both


@pytest.fixture
async def queued() -> AsyncIterator[Two]:
    async with two_tiers(queue_bytes=2**20) as both:
        yield both


async def only_far(two: Two) -> None:
    await two.store.offer(NAMESPACE, [record(0)])
    await two.near.drop(NAMESPACE, key(0))


async def dispute(two: Two) -> None:
    (verdict,) = await two.store.offer(NAMESPACE, [OTHER_CONTENT])
    assert verdict.outcome is Outcome.QUARANTINE


async def test_a_read_of_before_a_conflict_brings_nothing_nearer(two: Two) -> None:
    await only_far(two)
    reading = await two.read(key(0))
    assert reading.verdicts == [USE]
    await dispute(two)
    await two.store.learn(NAMESPACE, keys(1), reading)
    await until(two.settled())
    await two.store.learn(NAMESPACE, keys(1), reading)
    assert await two.held() == [None, None]


async def test_a_read_that_a_conflict_overtakes_finds_nothing(two: Two) -> None:
    await only_far(two)
    two.far.waits = asyncio.Event()
    reading = asyncio.create_task(two.read(key(0)))
    await until(asked(two.far, 2))
    waits, two.far.waits = two.far.waits, None
    await dispute(two)
    await until(two.settled())
    waits.set()
    assert (await reading).verdicts == [ABSENT]


def asked(tier: Told, count: int) -> Callable[[], Awaitable[bool]]:
    async def enough() -> bool:
        return tier.num_asked >= count

    return enough


async def test_nothing_is_found_while_a_tier_cannot_remove_it(two: Two) -> None:
    await only_far(two)
    await dispute(two)
    two.far.first = fail_once(two.far)
    reading = await two.read(key(0))
    assert reading.records == [None]
    await until(two.settled())
    assert await two.held() == [None, None]


def fail_once(tier: Told) -> Callable[[], None]:
    def first() -> None:
        tier.first = lambda: None
        fail()

    return first


async def test_what_a_conflict_finds_in_the_queue_is_not_written(queued: Two) -> None:
    await queued.store.offer(NAMESPACE, [record(0), record(1)])
    await dispute(queued)
    async with writing(queued):
        await until(queued.settled())
    assert await queued.held() == [None, None]
    assert await queued.far.get_many(NAMESPACE, keys(1, 1)) == [record(1)]


async def test_what_is_being_written_during_a_conflict_is_removed_after(queued: Two) -> None:
    queued.far.waits = asyncio.Event()
    await queued.store.offer(NAMESPACE, [record(0)])
    async with writing(queued):
        await until(asked(queued.far, 1))
        await dispute(queued)
        queued.far.waits.set()
        await until(queued.settled())
    assert await queued.held() == [None, None]


@asynccontextmanager
async def writing(two: Two) -> AsyncIterator[None]:
    task = asyncio.create_task(two.store.write(two.far_level))
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_is_computed_again_after_a_conflict_is_kept_and_found(two: Two) -> None:
    await only_far(two)
    await dispute(two)
    await until(two.settled())
    await two.store.offer(NAMESPACE, [record(0)])
    await two.near.drop(NAMESPACE, key(0))
    reading = await two.read(key(0))
    assert reading.records == [record(0)]
    await two.store.learn(NAMESPACE, keys(1), reading)
    assert await two.held() == [record(0)] * 2


async def test_a_read_of_before_a_retirement_brings_nothing_nearer(two: Two) -> None:
    await only_far(two)
    reading = await two.read(key(0))
    two.registry.retire(NAMESPACE.name)
    await two.store.learn(NAMESPACE, keys(1), reading)
    assert await two.near.get_many(NAMESPACE, keys(1)) == [None]


async def test_a_read_that_a_retirement_overtakes_finds_nothing(two: Two) -> None:
    await only_far(two)
    two.far.first = lambda: two.registry.retire(NAMESPACE.name)
    assert (await two.read(key(0))).records == [None]


PLACES = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([b"0", b"1", b"2"]))
STEPS = st.lists(st.tuples(st.sampled_from(["begin", "end", "read"]), PLACES), max_size=60)


@given(STEPS, st.integers(1, 3))
def test_a_read_is_never_told_that_what_was_removed_stands(
    steps: list[tuple[str, tuple[str, bytes]]], max_remembered: int
) -> None:
    removals = Removals(max_remembered)
    under_way: list[tuple[str, bytes]] = []
    reads: list[tuple[int, set[tuple[str, bytes]]]] = []
    for what, place in steps:
        if what == "begin":
            removals.begin(place)
            under_way.append(place)
        elif what == "end" and place in under_way:
            removals.end(place)
            under_way.remove(place)
            for _, removed in reads:
                removed.add(place)
        elif what == "read":
            reads.append((removals.latest, set()))
        for began, removed in reads:
            assert all(removals.overtook(each, began) for each in removed | set(under_way))
            assert removals.none_since(began) == (not removed and not under_way)
    now = removals.latest
    for place in places():
        assert removals.overtook(place, now) == (place in under_way), "a new read is told exactly"


def places() -> Iterator[tuple[str, bytes]]:
    return ((name, each) for name in "ab" for each in (b"0", b"1", b"2"))
