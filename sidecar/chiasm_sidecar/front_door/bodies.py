"""Reads request bodies within two limits: one for each, one for all that are held at once.

A body is held from its first byte until the worker has answered its first, and costs several times
its size on the way (text, media, frame). One that was handed to another sidecar is held until
nobody else will be asked: a stream's until its first whole event, any other's until the answer is
whole. Without the second limit a few dozen large requests would end the process, and with it every
answer that runs. Small bodies are not counted, so a few large ones that stall keep nobody else out.
"""

from __future__ import annotations

from chiasm_contract.errors import Overloaded, RequestTooLarge
from starlette.types import Receive

from chiasm_sidecar.front_door.client_waits import ClientGone

_HELD_BODIES = 2
# Held at once whatever one may be: requests that wait for the model are held too.
MIN_HELD_BYTES = 256 * 2**20
_SMALL_BODY_BYTES = 64 * 2**10
_RETRY_AFTER_SECONDS = 1


class Bodies:
    """What all requests of a process hold."""

    def __init__(self, max_body_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self.max_held_bytes = max(MIN_HELD_BYTES, _HELD_BODIES * max_body_bytes)
        self.num_held_bytes = 0

    def begin(self) -> HeldBody:
        """The body of one more request, none of it read."""
        return HeldBody(self)


class HeldBody:
    """The body of one request. Whoever begins it must release it."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._num_held_bytes = 0

    async def read(self, receive: Receive, announced: str) -> bytes:
        """The whole body; `announced` is the header Content-Length, empty without one.

        Raises: RequestTooLarge as soon as it is known to be, Overloaded when too much is held,
        ClientGone.
        """
        limit = self._bodies.max_body_bytes
        if announced.isdecimal() and int(announced[:20]) > limit:
            raise _too_large(limit)
        pieces: list[bytes] = []
        num_bytes, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece = message.get("body", b"")
            num_bytes += len(piece)
            if num_bytes > limit:
                raise _too_large(limit)
            if num_bytes > _SMALL_BODY_BYTES:
                self._hold(num_bytes)
            pieces.append(piece)
            more = message.get("more_body", False)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def release(self) -> None:
        """The bytes are let go; releasing twice does nothing."""
        self._bodies.num_held_bytes -= self._num_held_bytes
        self._num_held_bytes = 0

    def _hold(self, num_bytes: int) -> None:
        self._bodies.num_held_bytes += num_bytes - self._num_held_bytes
        self._num_held_bytes = num_bytes
        if self._bodies.num_held_bytes > self._bodies.max_held_bytes:
            raise Overloaded(
                "Too many large requests are on their way at once; retry in a moment.",
                retry_after_seconds=_RETRY_AFTER_SECONDS,
            )


def _too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(
        f"The request's body is larger than {limit} bytes. Send fewer or smaller files."
    )
