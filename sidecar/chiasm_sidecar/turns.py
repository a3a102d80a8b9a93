"""One at a time, and not too often: for what costs work and anybody in the cluster may ask for.

Must not know: what is asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from chiasm_contract.errors import Overloaded


class Turns:
    """A queue of askers, of whom one is served at a time.

    Args:
        between_seconds: from one's end to the next one's begin.
        patience_seconds: how long an asker waits for its turn.
    """

    def __init__(
        self,
        between_seconds: float = 1.0,
        patience_seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._between_seconds = between_seconds
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._lock = asyncio.Lock()
        self._next_at = clock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Serve one asker within the block.

        Raises: Overloaded when those before take too long.
        """
        try:
            async with asyncio.timeout(self._patience_seconds):
                await self._lock.acquire()
        except TimeoutError as error:
            raise Overloaded(
                "Others ask for the same and are served one at a time; try again in a moment.",
                retry_after_seconds=max(1, round(self._between_seconds)),
            ) from error
        try:
            await asyncio.sleep(max(0.0, self._next_at - self._clock()))
            yield
        finally:
            self._next_at = self._clock() + self._between_seconds
            self._lock.release()
