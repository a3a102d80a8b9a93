"""A tier in memory that does what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from chiasm_contract.block_guard import Verdict
from chiasm_contract.block_record import Header
from chiasm_contract.block_wire import Tier as Place
from chiasm_sidecar.kv.namespaces import Namespace
from chiasm_sidecar.kv.tiers.base import TierFailed
from chiasm_sidecar.kv.tiers.host import HostTier


class Told(HostTier):
    """Does first what it is told, then waits as long as `waits` is not set."""

    def __init__(self, place: Place = Place.HOST) -> None:
        super().__init__(2**20, 1.0)
        self.place = place
        self.first: Callable[[], object] = lambda: None
        self.waits: asyncio.Event | None = None
        self.num_asked = 0

    async def get_many(self, namespace: Namespace, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        found = await super().get_many(namespace, keys)
        await self._meanwhile()
        return found

    async def put(self, namespace: Namespace, header: Header, record: bytes) -> Verdict:
        await self._meanwhile()
        return await super().put(namespace, header, record)

    async def drop(self, namespace: Namespace, key: bytes) -> None:
        self.first()
        await super().drop(namespace, key)

    async def _meanwhile(self) -> None:
        self.num_asked += 1
        self.first()
        if self.waits is not None:
            await self.waits.wait()


def fail() -> None:
    raise TierFailed("told so")
