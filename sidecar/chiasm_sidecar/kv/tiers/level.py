"""One tier as the store uses it: with its breaker, the kinds it takes, and its queue of writes.

Nearest first: a level without a queue is written at once (memory), one with a queue behind. A full
queue refuses, and what a closed tier cannot take is dropped: an offer never waits for a tier.

A drop and a write of one tier never overlap, and a drop takes what still waits to be written with
it: what was offered before a drop is not there after it.

Must not know: connections, slots, what a verdict on a read means.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from chiasm_contract.block_guard import USE, Outcome, Verdict
from chiasm_contract.block_record import Header, RecordKind

from chiasm_sidecar.kv.meters import Meters, place_name
from chiasm_sidecar.kv.namespaces import Namespace
from chiasm_sidecar.kv.tiers.base import Tier, TierFailed
from chiasm_sidecar.kv.tiers.breaker import Breaker

log = logging.getLogger("chiasm.sidecar.kv")

_BUSY = Verdict(Outcome.MISS, "busy")


@dataclass(frozen=True, slots=True)
class _Write:
    namespace: Namespace
    header: Header
    record: bytes


class Level:
    """A tier, what may go there, and whether it is worth asking."""

    def __init__(
        self,
        tier: Tier,
        meters: Meters,
        clock: Callable[[], float],
        kinds: frozenset[RecordKind] = frozenset(RecordKind),
        queue_bytes: int | None = None,
    ) -> None:
        """`queue_bytes` bounds what waits to be written; None: write at once."""
        self.tier = tier
        self.breaker = Breaker()
        self.num_queued_bytes = 0
        self._kinds = kinds
        self._meters = meters
        self._clock = clock
        self._queue_bytes = queue_bytes
        self._writes: deque[_Write] = deque()
        self._waiting = asyncio.Event()
        self._changing = asyncio.Lock()

    async def get_many(
        self, namespace: Namespace, keys: Sequence[bytes], deadline: float, fair_seconds: float
    ) -> Sequence[bytes | None] | None:
        """What the tier has; None when it could not be asked or did not answer in time.

        An answer that did not come counts against the tier if it had `fair_seconds` for it.
        """
        now = self._clock()
        if now >= deadline or not self.breaker.allows(now):
            return None
        try:
            async with asyncio.timeout(deadline - now):
                records = await self.tier.get_many(namespace, keys)
        except TierFailed as error:
            self._failed(error)
            return None
        except TimeoutError as error:
            if self._clock() - now >= fair_seconds:
                self._failed(error)
            return None
        self.breaker.succeeded()
        return records

    async def offer(self, namespace: Namespace, header: Header, record: bytes) -> Verdict | None:
        """Keep a record, now or soon; None when its kind does not go here."""
        if header.kind not in self._kinds:
            return None
        if self._queue_bytes is None:
            return await self._put(_Write(namespace, header, record))
        if self.num_queued_bytes + len(record) > self._queue_bytes:
            self._meters.dropped(self.tier.place, "busy")
            return _BUSY
        self._writes.append(_Write(namespace, header, record))
        self.num_queued_bytes += len(record)
        self._waiting.set()
        return USE

    async def writing(self) -> AsyncIterator[tuple[Namespace, bytes]]:
        """Write what is queued, for ever; yields the keys under which there were two contents."""
        while True:
            await self._waiting.wait()
            while self._writes:
                write = self._writes.popleft()
                verdict = None
                try:
                    async with self._changing:
                        verdict = await self._put(write)
                except Exception:
                    # Nobody awaits this before the end; ended, the queue would stay full.
                    log.exception("a record could not be written; this is a bug")
                finally:
                    self.num_queued_bytes -= len(write.record)
                if verdict is not None and verdict.outcome is Outcome.QUARANTINE:
                    yield write.namespace, write.header.block_key
            self._waiting.clear()

    async def _put(self, write: _Write) -> Verdict:
        place = self.tier.place
        if not self.breaker.allows(self._clock()):
            self._meters.dropped(place, "failed")
            return _BUSY
        try:
            verdict = await self.tier.put(write.namespace, write.header, write.record)
        except TierFailed as error:
            self._failed(error)
            self._meters.dropped(place, "failed")
            return _BUSY
        self.breaker.succeeded()
        if verdict.outcome is Outcome.USE:
            self._meters.written(place, write.header)
        elif verdict.outcome is Outcome.QUARANTINE:
            self._meters.conflict(place, len(write.record))
        elif verdict.detail == "busy":
            self._meters.dropped(place, "busy")
        return verdict

    async def drop(self, namespace: Namespace, key: bytes) -> bool:
        """Take a record out, and what waits to be written under its key; whether that was done."""
        self._take_back(namespace, key)
        try:
            async with self._changing:
                await self.tier.drop(namespace, key)
        except TierFailed as error:
            self._failed(error)
            return False
        return True

    def _take_back(self, namespace: Namespace, key: bytes) -> None:
        def meant(write: _Write) -> bool:
            return write.namespace.name == namespace.name and write.header.block_key == key

        taken = [write for write in self._writes if meant(write)]
        if taken:
            self._writes = deque(write for write in self._writes if not meant(write))
            self.num_queued_bytes -= sum(len(write.record) for write in taken)

    def _failed(self, error: Exception) -> None:
        place = place_name(self.tier.place)
        self._meters.failed(self.tier.place)
        was_open = self.breaker.open
        self.breaker.failed(self._clock())
        if self.breaker.open and not was_open:
            words = {"tier": place, "detail": str(error) or type(error).__name__}
            log.warning("a tier is left alone for a while", extra={"fields": words})
