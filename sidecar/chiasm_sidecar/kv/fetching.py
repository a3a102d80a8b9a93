"""One FETCH: which of its keys are read, in which order, and which get a slot.

Groups are read in windows, so that neither a long prefix nor a slow tier makes much wait in memory
and the event loop gets its turn. A chain ends at its first gap: what lies behind is not even read.
An entry that is not there as a whole takes no slot. What finds no free slot is `busy`: the worker
releases, and asks again.

Must not know: tiers, files, frames.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence

from chiasm_contract.block_guard import USE, Outcome, Verdict
from chiasm_contract.block_wire import Found, Group, GroupKind

from chiasm_sidecar.kv.staging import Staging
from chiasm_sidecar.kv.store import BUSY, Reading

Read = Callable[[Sequence[bytes]], Awaitable[Reading]]

_DROPPED = Found(Verdict(Outcome.MISS, "dropped"))
_BUSY = Found(BUSY)
_WINDOW_BYTES = 8 * 2**20
_MIN_WINDOW = 8


class Fetching:
    """Fills one FETCH's slots; keeps what was read for the store to learn from."""

    def __init__(self, read: Read, staging: Staging) -> None:
        self._read = read
        self._staging = staging
        self._window = max(_MIN_WINDOW, _WINDOW_BYTES // staging.slot_bytes)
        self.readings: list[tuple[Sequence[bytes], Reading]] = []

    async def groups(self, groups: Sequence[Group]) -> list[Found]:
        """One entry for each key, in order."""
        found: list[Found] = []
        lead = 0
        for number, group in enumerate(groups):
            if group.unless_chain and lead >= group.unless_chain:
                part = [_DROPPED] * len(group.keys)
            elif group.kind is GroupKind.ENTRY:
                part = await self._entry(group.keys)
            else:
                part = await self._run(group.keys)
            if number == 0:
                lead = _leading(part)
            found += part
        return found

    async def _entry(self, keys: Sequence[bytes]) -> list[Found]:
        if len(keys) > self._staging.slots.num_free:
            return [_BUSY] * len(keys)
        found = await self._run(keys)
        slots = [each.slot for each in found if each.slot >= 0]
        if len(slots) == len(keys):
            return found
        self._staging.slots.release(slots)
        return [_DROPPED if each.slot >= 0 else each for each in found]

    async def _run(self, keys: Sequence[bytes]) -> list[Found]:
        """The leading run, up to the first key that cannot be handed out."""
        found: list[Found] = []
        while len(found) < len(keys):
            if found:
                await asyncio.sleep(0)
            room = min(self._window, self._staging.slots.num_free)
            if not room:  # nothing is read that nobody can be given
                return found + [_BUSY] * (len(keys) - len(found))
            part = await self._fill(keys[len(found) : len(found) + room])
            found += part
            if _leading(part) < len(part):
                found += [_DROPPED] * (len(keys) - len(found))
        return found

    async def _fill(self, keys: Sequence[bytes]) -> list[Found]:
        reading = await self._read(keys)
        self.readings.append((keys, reading))
        count = _num_leading(reading.verdicts)
        slots = self._staging.slots.take(count)
        for slot, record in zip(slots, reading.records[: len(slots)], strict=True):
            if record is not None:  # as it is wherever the verdict is use
                self._staging.write(slot, record)
        found = list(map(Found, itertools.repeat(USE), reading.places, slots))
        found += [_BUSY] * (count - len(slots))
        for verdict in reading.verdicts[count:]:
            found.append(_DROPPED if verdict.outcome is Outcome.USE else Found(verdict))
        return found


def _num_leading(verdicts: Sequence[Verdict]) -> int:
    if verdicts.count(USE) == len(verdicts):
        return len(verdicts)
    return next(i for i, verdict in enumerate(verdicts) if verdict.outcome is not Outcome.USE)


def _leading(found: Sequence[Found]) -> int:
    """How many of the first are of use."""
    return next((i for i, each in enumerate(found) if each.slot < 0), len(found))
