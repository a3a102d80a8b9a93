"""One piece of work at a time, shared by those who ask for it meanwhile.

For what anybody in the cluster may ask for and what costs something: who asks while it runs has its
result, and between two of them lies a pause.

Must not know: what the work is. For one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from chiasm_contract.ending import end

T = TypeVar("T")

PAUSE_SECONDS = 1.0


class SharedWork(Generic[T]):
    """The work of one kind."""

    def __init__(self, pause_seconds: float = PAUSE_SECONDS) -> None:
        self._pause_seconds = pause_seconds
        self._may_begin = 0.0
        self._task: asyncio.Task[T] | None = None

    async def take(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of the work that runs, or of `work`; leaving early ends it for nobody."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(work))
        return await asyncio.shield(self._task)

    async def close(self) -> None:
        """End what runs."""
        await end([] if self._task is None else [self._task])

    async def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        await asyncio.sleep(max(0.0, self._may_begin - time.monotonic()))
        try:
            return await work()
        finally:
            self._may_begin = time.monotonic() + self._pause_seconds
