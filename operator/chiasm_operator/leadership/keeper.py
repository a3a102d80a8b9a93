"""Keeps the lease, or waits for it; opens and closes the fence accordingly.

    0 s          5 s          10 s         15 s    (lease_seconds = 15)
    renewed      renews       fence shut   another one may take over

One round is one attempt; whoever runs the rounds starts and ends the passes by what they answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from chiasm_operator.leadership.fence import Fence
from chiasm_operator.leadership.lease import held, may_take, parse, released
from chiasm_operator.resource import Manifest

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
# Two installations over the same resources would count on from each other for ever.
OUTRANK_SECONDS = 30.0


class LeaseStore(Protocol):
    """Where the Lease is."""

    async def read(self) -> dict[str, Any] | None:
        """The stored Lease; None when there is none."""

    async def create(self, spec: Manifest) -> dict[str, Any] | None:
        """Make it; None when somebody else was quicker."""

    async def replace(self, stored: Manifest, spec: Manifest) -> dict[str, Any] | None:
        """Put `spec` where `stored` was read; None when somebody wrote meanwhile."""


class LeaseKeeper:
    """One candidate."""

    def __init__(
        self,
        store: LeaseStore,
        fence: Fence,
        identity: str,
        lease_seconds: int,
        clocks: tuple[Callable[[], float], Callable[[], str]],
    ) -> None:
        self._store = store
        self._fence = fence
        self.identity = identity
        self._seconds = lease_seconds
        self._clock, self._now = clocks
        self._epoch: int | None = None
        self._stored: dict[str, Any] | None = None
        self._since = self._now()
        self._version, self._unchanged_since = "", self._clock()
        self._looked = self._clock()
        self._outranked: float | None = None
        self.holder = ""

    @property
    def epoch(self) -> int | None:
        """The epoch of this leader; None while it waits."""
        return self._epoch

    def stalled(self, stall_seconds: float) -> str | None:
        """What is wrong when the lease could not be looked at for so long."""
        silent = self._clock() - self._looked
        if silent > self._seconds + stall_seconds:
            return f"The lease was last looked at {silent:.0f} s ago."
        return None

    async def round(self) -> bool:
        """One attempt to keep or get the lease; whether this process leads now.

        What fails is tried again: a leader leads on until its lease may have run out.
        """
        if self._epoch is not None and not self._fence.is_open:
            self._lose("it could not be renewed in time")
            return False
        try:
            async with asyncio.timeout(self._seconds / 3):
                await self._attempt()
        except Exception as error:
            logger.warning("the lease: will try again: %r", error)
            if self._epoch is not None and not self._fence.is_open:
                self._lose("it could not be renewed in time")
        else:
            self._looked = self._clock()
        return self._epoch is not None

    @property
    def pause_seconds(self) -> float:
        """How long to wait before the next round."""
        if self._epoch is None:
            return self._seconds / 5
        fresh = self._clock() - self._looked < self._seconds / 3
        return self._seconds / 3 if fresh else RETRY_SECONDS

    async def release(self) -> None:
        """Give the lease back, so that the next one need not wait; a failure costs only that."""
        if self._epoch is None or self._stored is None:
            return
        epoch = self._epoch
        self._lose("it is given back")
        try:
            async with asyncio.timeout(self._seconds / 3):
                await self._store.replace(self._stored, released(epoch, self._now()))
        except Exception as error:
            logger.warning("the lease could not be given back: %r", error)

    async def _attempt(self) -> None:
        asked = self._clock()
        if self._epoch is not None and self._stored is not None:
            # What was stored last is ours unless somebody took it, and then this is refused.
            if await self._write(self._next_epoch(), asked):
                return
            self._lose("another operator took it")
            return
        stored = await self._store.read()
        if stored is None:
            self._hold(await self._store.create(self._held(self._first_epoch(0))), asked)
            return
        lease = parse(stored)
        self._stored = stored
        if lease.version != self._version:
            self._version, self._unchanged_since = lease.version, self._clock()
        unchanged = self._clock() - self._unchanged_since
        if not may_take(lease, self.identity, unchanged):
            if self.holder != lease.holder:
                logger.info("following %s", lease.holder)
            self.holder = lease.holder
            return
        await self._write(self._first_epoch(lease.transitions), asked)

    def _first_epoch(self, transitions: int) -> int:
        self._since = self._now()
        return max(transitions, self._fence.highest_seen) + 1

    def _next_epoch(self) -> int:
        """Mostly the present one; above what was met in a status when the Lease itself was lost."""
        assert self._epoch is not None  # noqa: S101 - the caller leads
        seen, now = self._fence.highest_seen, self._clock()
        recently = self._outranked is not None and now - self._outranked < OUTRANK_SECONDS
        if seen <= self._epoch or recently:
            return self._epoch
        self._outranked = now
        logger.warning("counting on from epoch %d, which was met in a status", seen)
        return seen + 1

    def _held(self, epoch: int) -> dict[str, Any]:
        return held(self.identity, epoch, self._seconds, self._now(), self._since)

    async def _write(self, epoch: int, asked: float) -> bool:
        assert self._stored is not None  # noqa: S101 - it was read
        return self._hold(await self._store.replace(self._stored, self._held(epoch)), asked)

    def _hold(self, stored: dict[str, Any] | None, asked: float) -> bool:
        """Lead by what was `stored`; the lease counts from the moment it was asked for."""
        if stored is None:
            return False
        lease = parse(stored)
        if self._epoch is None:
            logger.info("leading with epoch %d as %s", lease.transitions, self.identity)
        self._stored, self._epoch, self.holder = stored, lease.transitions, self.identity
        self._version, self._unchanged_since = lease.version, self._clock()
        self._fence.open(lease.transitions, asked + self._seconds * 2 / 3)
        return True

    def _lose(self, why: str) -> None:
        logger.warning("no longer leading: %s", why)
        self._epoch, self.holder = None, ""
        self._fence.close()
