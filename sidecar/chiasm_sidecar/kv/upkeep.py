"""What happens beside requests: retired namespaces are swept, and stay so.

From the moment that a prefix is retired nothing under it is read or written here. Tombstones are
set up in every tier before anything is removed, so nothing can be written behind a sweep. A sweep
never hurries: a batch, a pause; of each tier one at a time, so that a slow one holds up none of the
others. A tier that fails is asked again later; until then the namespace stays retired.

A tombstone may get lost where others keep it: a Valkey that was emptied, or that came back from an
older snapshot, with records of before in it. It is therefore set up again and again, and where it
did not stand the tier is swept once more.

Must not know: where the list of what is retired comes from.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chiasm_contract.ending import end

from chiasm_sidecar.kv.meters import place_name
from chiasm_sidecar.kv.namespaces import Registry
from chiasm_sidecar.kv.tiers.base import TierFailed
from chiasm_sidecar.kv.tiers.level import Level

log = logging.getLogger("chiasm.sidecar.kv")

BATCH = 256


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds between batches, before a tier that failed, and before tombstones are looked at."""

    batch: float = 0.1
    retry: float = 30.0
    again: float = 60.0


class Sweeper:
    """Ends namespaces, each in a task of its own that goes on as long as the process lives."""

    def __init__(
        self, levels: Sequence[Level], registry: Registry, pauses: Pauses | None = None
    ) -> None:
        self._levels = levels
        self._registry = registry
        self._pauses = pauses or Pauses()
        self._turns = {id(level): asyncio.Lock() for level in levels}
        # Apart from the turns of sweeps, so that a slow sweep holds up no tombstone; and not all at
        # once, for a shared store has so many connections only.
        self._marking = {id(level): asyncio.Lock() for level in levels}
        self._opened = asyncio.Event()
        self._endings: dict[str, asyncio.Task[None]] = {}

    def retire(self, prefixes: Iterable[str]) -> None:
        """End these; those that are named already go on ending."""
        for prefix in prefixes:
            if prefix not in self._endings:
                self._registry.retire(prefix)
                self._endings[prefix] = asyncio.create_task(self._end(prefix))

    async def begin(self) -> None:
        """The tiers are open: sweep from now on, first what processes of before had begun."""
        self._opened.set()
        for level in self._levels:
            await self.resume(level)

    async def resume(self, level: Level) -> None:
        """A tier is open: sweep what processes of before had begun to."""
        for prefix in list(level.tier.tombstones()):
            await self._sweep(level, prefix)

    async def close(self) -> None:
        """Leave the rest to the next process."""
        await end(self._endings.values())

    async def _end(self, prefix: str) -> None:
        await self._opened.wait()
        while not await self._swept(prefix):  # noqa: ASYNC110 - pauses, waits for nothing
            await asyncio.sleep(self._pauses.retry)
        self._registry.swept(prefix)
        log.info("a namespace is swept", extra={"fields": {"namespace": prefix}})
        owed: set[int] = set()
        while True:
            await asyncio.sleep(self._pauses.again)
            for number, level in enumerate(self._levels):
                if await self._retire(level, prefix):
                    words = {"tier": place_name(level.tier.place), "namespace": prefix}
                    log.warning("a tombstone was lost", extra={"fields": words})
                    owed.add(number)
                if number in owed and await self._sweep(level, prefix):
                    owed.discard(number)

    async def _swept(self, prefix: str) -> bool:
        standing = [
            level for level in self._levels if await self._retire(level, prefix) is not None
        ]
        done = [await self._sweep(level, prefix) for level in standing]
        return all(done) and len(standing) == len(self._levels)

    async def _retire(self, level: Level, prefix: str) -> bool | None:
        """Whether a tombstone was missing in a tier; None when that cannot be told."""
        try:
            async with self._marking[id(level)]:
                return await level.tier.retire(prefix)
        except TierFailed as error:
            _put_off(level, error)
            return None

    async def _sweep(self, level: Level, prefix: str) -> bool:
        """Whether nothing is left in a tier."""
        try:
            async with self._turns[id(level)]:
                while await level.tier.sweep(prefix, BATCH):  # noqa: ASYNC110
                    await asyncio.sleep(self._pauses.batch)
        except TierFailed as error:
            _put_off(level, error)
            return False
        return True


def _put_off(level: Level, error: TierFailed) -> None:
    words = {"tier": place_name(level.tier.place), "detail": str(error)}
    log.warning("a sweep is put off", extra={"fields": words})
