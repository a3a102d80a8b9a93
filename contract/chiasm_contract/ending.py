"""Ends tasks that go on for ever.

To cancel one once is not enough: before Python 3.12 `asyncio.wait_for`, in which a client of Valkey
waits, swallows a cancellation that comes just when what it waits for is done. A task that then goes
on would be waited for until the pod is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

_CANCEL_AGAIN_SECONDS = 0.5


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until each has ended."""
    every = running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=_CANCEL_AGAIN_SECONDS)
    await asyncio.gather(*every, return_exceptions=True)
