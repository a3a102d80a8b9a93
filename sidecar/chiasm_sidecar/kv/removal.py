"""Keys that are taken out of every tier, and what reads of before may still do with them.

A removal takes a while: a tier may be slow, and one that fails is asked again. What a read found
before the removal's end may be what is removed, so it must neither be handed out nor brought into
another tier. A removal is therefore under way until the last tier has done its part, and has a
number from then on; a read knows the number of the last removal when it began.

Removals are remembered up to a bound. Of a read that is older than what is forgotten nobody can
tell what it may have missed: everything that it found counts as removed.

Must not know: records, verdicts, why something is removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Coroutine, Sequence
from typing import Any

from chiasm_sidecar.kv.meters import place_name
from chiasm_sidecar.kv.namespaces import Namespace
from chiasm_sidecar.kv.tiers.level import Level

log = logging.getLogger("chiasm.sidecar.kv")

_MAX_REMEMBERED = 4096
PAUSES_SECONDS = (1.0, 5.0, 30.0)

Place = tuple[str, bytes]


class Removals:
    """Which (namespace, key) is removed when, as numbers. Pure.

    Invariant: at most `max_remembered` ended removals are remembered.
    """

    def __init__(self, max_remembered: int = _MAX_REMEMBERED) -> None:
        self.latest = 0
        self._max_remembered = max_remembered
        self._under_way: Counter[Place] = Counter()
        self._ended: OrderedDict[Place, int] = OrderedDict()
        self._forgotten = 0

    def begin(self, place: Place) -> None:
        """A removal begins."""
        self._under_way[place] += 1

    def end(self, place: Place) -> None:
        """One that began has come to its end."""
        self._under_way[place] -= 1
        if not self._under_way[place]:
            del self._under_way[place]
        self.latest += 1
        self._ended[place] = self.latest
        self._ended.move_to_end(place)
        if len(self._ended) > self._max_remembered:
            _, self._forgotten = self._ended.popitem(last=False)

    def none_since(self, number: int) -> bool:
        """Whether nothing is being removed, or was since."""
        return not self._under_way and self.latest == number

    def overtook(self, place: Place, number: int) -> bool:
        """Whether what was found here by a read that began at `number` may be what is removed."""
        if number < self._forgotten or place in self._under_way:
            return True
        return self._ended.get(place, 0) > number


class Remover:
    """Takes keys out of tiers beside requests."""

    def __init__(self, levels: Sequence[Level], pauses_seconds: Sequence[float]) -> None:
        self._levels = levels
        self._pauses_seconds = pauses_seconds
        self._chores: set[asyncio.Task[None]] = set()
        self.removals = Removals()

    def expel(self, level: Level, namespace: Namespace, keys: Sequence[bytes]) -> None:
        """Take out of one tier what every read judges anew; what others hold is right."""

        async def drop() -> None:
            for key in keys:
                await level.drop(namespace, key)

        self._start(drop())

    def remove(self, namespace: Namespace, key: bytes) -> None:
        """Take a key out of every tier; no read that may have found it counts from now on."""
        place = (namespace.name, key)
        self.removals.begin(place)

        async def drop() -> None:
            try:
                await asyncio.gather(*[self._drop(level, namespace, key) for level in self._levels])
            finally:
                self.removals.end(place)

        self._start(drop())

    async def _drop(self, level: Level, namespace: Namespace, key: bytes) -> None:
        for pause in (*self._pauses_seconds, None):
            if await level.drop(namespace, key):
                return
            if pause is not None:
                await asyncio.sleep(pause)
        words = {
            "tier": place_name(level.tier.place),
            "namespace": namespace.name,
            "key": key.hex(),
        }
        log.error("a disputed record stays in a tier that fails", extra={"fields": words})

    def _start(self, chore: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def close(self) -> None:
        """End what is under way."""
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
