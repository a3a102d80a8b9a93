"""A tier as the store uses it: a clock of the test's, a tier that does what the test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from chiasm_contract.block_guard import USE, Outcome, Verdict
from chiasm_contract.block_record import Header, RecordKind
from chiasm_sidecar.kv.meters import Meters
from chiasm_sidecar.kv.namespaces import Namespace
from chiasm_sidecar.kv.tiers.base import TierFailed
from chiasm_sidecar.kv.tiers.host import HostTier
from chiasm_sidecar.kv.tiers.level import Level
from chiasm_sidecar.metrics import Metrics

from tests.sidecar.conftest import until
from tests.sidecar.kv.conftest import NAMESPACE, RECORD_BYTES, header, keys, record

BUSY = Verdict(Outcome.MISS, "busy")


class Told(HostTier):
    """A tier in memory that does first what it is told."""

    def __init__(self) -> None:
        super().__init__(2**20, 1.0)
        self.first: Callable[[], object] = lambda: None
        self.waits: asyncio.Event | None = None
        self.num_asked = 0

    async def get_many(self, namespace: Namespace, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        await self._before()
        return await super().get_many(namespace, keys)

    async def put(self, namespace: Namespace, header: Header, record: bytes) -> Verdict:
        await self._before()
        return await super().put(namespace, header, record)

    async def _before(self) -> None:
        self.num_asked += 1
        self.first()
        if self.waits is not None:
            await self.waits.wait()


def fail() -> None:
    raise TierFailed("told so")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def new(queue_bytes: int | None = None, **changes: object) -> tuple[Told, Level, Clock, Metrics]:
    tier, clock, metrics = Told(), Clock(), Metrics("demo")
    level = Level(tier, Meters(metrics), clock, queue_bytes=queue_bytes, **changes)  # type: ignore[arg-type]
    return tier, level, clock, metrics


@contextlib.asynccontextmanager
async def writing(level: Level) -> AsyncIterator[None]:
    async def write() -> None:
        async for _ in level.writing():
            raise AssertionError("no two contents are written here")

    task = asyncio.create_task(write())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_tier_is_not_asked_after_the_deadline() -> None:
    tier, level, clock, _ = new()
    assert await level.get_many(NAMESPACE, keys(1), clock.now, 1) is None
    assert tier.num_asked == 0
    assert await level.get_many(NAMESPACE, keys(1), clock.now + 1, 1) == [None]


async def test_a_failing_tier_is_left_alone_until_its_pause_is_over() -> None:
    tier, level, clock, _ = new()
    tier.first = fail
    for _ in range(10):
        assert await level.get_many(NAMESPACE, keys(1), clock.now + 9, 1) is None
    assert tier.num_asked == 3
    clock.now += 1
    tier.first = lambda: None
    assert await level.get_many(NAMESPACE, keys(1), clock.now + 9, 1) == [None]
    assert not level.breaker.open


@pytest.mark.parametrize(("waited", "counts"), [(0.5, True), (0.4, False)])
async def test_only_a_fair_time_without_an_answer_counts(waited: float, counts: bool) -> None:
    tier, level, clock, metrics = new()
    tier.waits = asyncio.Event()

    def pass_time() -> None:
        clock.now += waited

    tier.first = pass_time
    assert await level.get_many(NAMESPACE, keys(1), clock.now + 0.001, 0.5) is None
    failures = metrics.registry.get_sample_value("chiasm_kv_tier_failures_total", {"tier": "host"})
    assert failures == counts


async def test_a_kind_that_does_not_go_there_is_not_offered() -> None:
    _, level, _, _ = new(kinds=frozenset({RecordKind.ENCODER_OUTPUT}))
    assert await level.offer(NAMESPACE, header(0), record(0)) is None
    kind = RecordKind.ENCODER_OUTPUT
    assert await level.offer(NAMESPACE, header(1, kind), record(1, kind)) == USE


async def test_a_queue_is_bounded_in_bytes_and_empties() -> None:
    tier, level, _, _ = new(queue_bytes=2 * RECORD_BYTES)
    offers = [await level.offer(NAMESPACE, header(n), record(n)) for n in range(4)]
    assert offers == [USE, USE, BUSY, BUSY]
    assert level.num_queued_bytes == 2 * RECORD_BYTES

    async def empty() -> bool:
        return level.num_queued_bytes == 0

    async with writing(level):
        await until(empty)
        assert await tier.get_many(NAMESPACE, keys(3)) == [record(0), record(1), None]
        assert await level.offer(NAMESPACE, header(2), record(2)) == USE
        await until(empty)


async def test_writes_to_a_tier_that_is_left_alone_are_dropped_not_waited_for() -> None:
    tier, level, _, metrics = new(queue_bytes=2**20)
    tier.first = fail
    for number in range(10):
        await level.offer(NAMESPACE, header(number), record(number))

    async def empty() -> bool:
        return level.num_queued_bytes == 0

    async with writing(level):
        await until(empty)
    assert tier.num_asked == 3
    labels = {"tier": "host", "reason": "failed"}
    assert metrics.registry.get_sample_value("chiasm_kv_writes_dropped_total", labels) == 10


async def test_a_bug_in_a_tier_does_not_end_the_writing(caplog: pytest.LogCaptureFixture) -> None:
    tier, level, _, _ = new(queue_bytes=2**20)

    def broken() -> None:
        tier.first = lambda: None
        raise RuntimeError("bug")

    tier.first = broken
    await level.offer(NAMESPACE, header(0), record(0))
    await level.offer(NAMESPACE, header(1), record(1))

    async def empty() -> bool:
        return level.num_queued_bytes == 0

    async with writing(level):
        await until(empty)
    assert await tier.get_many(NAMESPACE, keys(2)) == [None, record(1)]
    assert "this is a bug" in caplog.text
