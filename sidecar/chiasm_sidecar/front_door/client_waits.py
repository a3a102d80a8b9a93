"""Notices that a client has gone while its request is being worked on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class Waiting:
    """Whether a client's going still matters."""

    over = False

    def end(self) -> None:
        """The answer is complete: what the connection does now is of no interest."""
        self.over = True


@asynccontextmanager
async def client_waits(receive: Receive) -> AsyncIterator[Waiting]:
    """Interrupts the block when the client closes its connection.

    The body of the request must have been read: what `receive` returns next is the end.

    Raises: ClientGone in place of the block's cancellation.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("client_waits needs a task; this is a bug")
    waiting = Waiting()
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        if not waiting.over:
            gone = True
            task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield waiting
    except asyncio.CancelledError:
        if gone and task.uncancel() == 0:
            raise ClientGone from None
        raise
    finally:
        watcher.cancel()
