"""Memory that records of other replicas arrive in, and with it the bound of what is on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from chiasm_sidecar.kv.tiers.arena import Place, Region, record_in


class Berth:
    """A part of the landing place, for one read at a time."""

    def __init__(self, region: Region, start: int, num_bytes: int) -> None:
        self.address = region.address + start
        self.view = region.view[start : start + num_bytes]

    def records(self, places: Sequence[Place], slot_bytes: int) -> list[bytes | None]:
        """Copies of what arrived from some slots, back to back; None of another generation."""
        return [
            record_in(self.view[i * slot_bytes : (i + 1) * slot_bytes], place.generation)
            for i, place in enumerate(places)
        ]


class Landing:
    """A region in equal berths, each lent to one read until that has ended."""

    def __init__(self, num_bytes: int, num_berths: int) -> None:
        self.berth_bytes = num_bytes // num_berths
        self.region = Region(num_bytes)
        self._free: asyncio.LifoQueue[Berth] = asyncio.LifoQueue()
        for number in range(num_berths):
            berth = Berth(self.region, number * self.berth_bytes, self.berth_bytes)
            self._free.put_nowait(berth)

    async def take(self) -> Berth:
        """A free berth, as soon as there is one."""
        return await self._free.get()

    def give_back(self, berth: Berth) -> None:
        """Nothing is being read into it any more."""
        self._free.put_nowait(berth)
