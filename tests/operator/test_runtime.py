"""The lease and the passes together, in real time: whatever the passes do, the lease is kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from chiasm_operator.api import Api, Refused
from chiasm_operator.cluster import RESOURCE, Cluster
from chiasm_operator.leadership.fence import Fence
from chiasm_operator.leadership.keeper import LeaseKeeper
from chiasm_operator.passes import Rest
from chiasm_operator.runtime import Runtime
from chiasm_operator.supervisor import Supervisor, Tempo


@dataclass
class Store:
    """A Lease that nobody else wants."""

    writes: list[str] = field(default_factory=list)

    async def read(self) -> dict[str, Any] | None:
        return None

    async def create(self, spec: Any) -> dict[str, Any]:
        return await self.replace({}, spec)

    async def replace(self, _: Any, spec: Any) -> dict[str, Any]:
        self.writes.append(spec["holderIdentity"])
        return {"metadata": {"resourceVersion": str(len(self.writes))}, "spec": dict(spec)}


class SlowCluster(Cluster):
    """Finds what the index holds already, and takes as long for it as it is made to."""

    def __init__(self, fence: Fence) -> None:
        super().__init__(Api(), fence)
        self.may_list = asyncio.Event()
        self.refusals: list[Exception] = []

    async def relist(self, kinds: Any, namespaces: Any) -> set[tuple[str, str]]:
        if len(kinds) == 1:
            return set()  # the look before anything is started
        await self.may_list.wait()
        if self.refusals:
            raise self.refusals.pop(0)
        return set()


@dataclass
class Passes:
    """Stands where a Pass stands; one that is ended takes a moment for it."""

    cluster: SlowCluster
    begun: list[str] = field(default_factory=list)
    ending: bool = False
    hold: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, _: str, name: str) -> Rest:
        self.begun.append(name)
        try:
            await self.hold.wait()
        finally:
            self.ending = True
            await asyncio.sleep(0.05)
        return Rest(settled=True)

    async def close(self) -> None:
        await self.cluster.close()


@dataclass
class World:
    runtime: Runtime
    store: Store
    fence: Fence
    passes: Passes


@pytest.fixture
async def world() -> AsyncIterator[World]:
    fence, store = Fence(time.monotonic), Store()
    passes = Passes(SlowCluster(fence))
    supervisor = Supervisor(
        passes,  # type: ignore[arg-type]
        Tempo(resync_seconds=3600, unsettled_seconds=0.01, stall_seconds=60),
        (),
        time.monotonic,
    )
    keeper = LeaseKeeper(store, fence, "pod-1", 1, (time.monotonic, lambda: "2026-01-01T00:00:00Z"))

    async def closed() -> None: ...

    runtime = Runtime(supervisor, keeper, None, closed, ("127.0.0.1", 0))
    yield World(runtime, store, fence, passes)
    passes.hold.set()
    await runtime.stop()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


def resource(name: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"namespace": "n", "name": name, "resourceVersion": str(version)}}


async def test_the_lease_is_kept_while_everything_is_listed(world: World) -> None:
    world.passes.cluster.index.put(RESOURCE.kind, resource("a"))
    await world.runtime.start()
    await until(lambda: len(world.store.writes) > 6)
    assert world.fence.check() == 1, "one term all along"
    assert world.passes.begun == [], "not everything is known yet"
    world.passes.cluster.may_list.set()
    await until(lambda: world.passes.begun == ["a"])
    assert world.fence.check() == 1
    assert world.runtime.stalled() is None


async def test_a_list_that_is_refused_is_asked_for_again(world: World) -> None:
    cluster = world.passes.cluster
    cluster.index.put(RESOURCE.kind, resource("a"))
    cluster.refusals += [Refused(403, "no list of pods yet"), ConnectionError("nobody listens")]
    cluster.may_list.set()
    await world.runtime.start()
    await until(lambda: world.passes.begun == ["a"])


async def test_what_is_told_while_it_stops_begins_nothing(world: World) -> None:
    cluster = world.passes.cluster
    cluster.index.put(RESOURCE.kind, resource("a"))
    cluster.may_list.set()
    await world.runtime.start()
    await until(lambda: world.passes.begun == ["a"])
    stopping = asyncio.create_task(world.runtime.stop())
    await until(lambda: world.passes.ending)
    world.runtime.told(RESOURCE, "ADDED", resource("b"))
    await stopping
    await asyncio.sleep(0.05)
    assert world.passes.begun == ["a"]
    assert world.store.writes[-1] == "", "given back"
