"""What may be held of request bodies: each, and all together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from chiasm_contract.errors import Overloaded, RequestTooLarge
from chiasm_sidecar.front_door.bodies import Bodies, HeldBody

MIB = 2**20
PIECE, SMALLER = bytes(16 * MIB), bytes(MIB)


def receiver(
    pieces: Sequence[bytes], then: Callable[[], Awaitable[Any]] | None = None
) -> Callable[[], Awaitable[dict[str, Any]]]:
    """ASGI's receive: the pieces, then `then` for ever, else the end."""
    left = list(pieces)

    async def receive() -> dict[str, Any]:
        if not left and then is not None:
            await then()
        body = left.pop(0) if left else b""
        more = bool(left) or then is not None
        return {"type": "http.request", "body": body, "more_body": more}

    return receive


async def stalled(bodies: Bodies, *pieces: bytes) -> tuple[HeldBody, asyncio.Task[bytes]]:
    """A request that has sent these pieces and sends no more."""
    arrived = asyncio.Event()

    async def wait() -> None:
        arrived.set()
        await asyncio.Event().wait()

    held = bodies.begin()
    task = asyncio.create_task(held.read(receiver(pieces, wait), ""))
    waiting = asyncio.create_task(arrived.wait())
    await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    assert not task.done(), "the body is refused"
    return held, task


@pytest.mark.parametrize("max_body_bytes", [MIB, 20 * MIB, 64 * MIB])
async def test_a_small_limit_for_each_is_no_small_limit_for_all(max_body_bytes: int) -> None:
    bodies = Bodies(max_body_bytes)
    requests = [await stalled(bodies, SMALLER) for _ in range(200)]
    assert bodies.num_held_bytes == 200 * MIB
    for held, task in requests:
        task.cancel()
        held.release()
    assert bodies.num_held_bytes == 0


async def test_small_requests_pass_while_large_ones_fill_the_room() -> None:
    bodies = Bodies(128 * MIB)
    requests = [await stalled(bodies, *[PIECE] * 8) for _ in range(2)]
    assert await bodies.begin().read(receiver([b"{", b"x" * 50_000, b"}"]), "") is not None
    with pytest.raises(Overloaded, match="at once"):
        await bodies.begin().read(receiver([SMALLER]), "")
    with pytest.raises(Overloaded, match="at once"):
        await bodies.begin().read(receiver([b"x" * 1000] * 100), "")
    for held, task in requests:
        task.cancel()
        held.release()


async def test_a_released_body_is_not_counted_twice() -> None:
    bodies = Bodies(64 * MIB)
    held = bodies.begin()
    assert await held.read(receiver([PIECE, b"end"]), "") == PIECE + b"end"
    assert bodies.num_held_bytes == 16 * MIB + 3
    held.release()
    held.release()
    assert bodies.num_held_bytes == 0


async def test_one_body_has_its_limit() -> None:
    bodies = Bodies(1024)
    with pytest.raises(RequestTooLarge, match="larger than 1024 bytes"):
        await bodies.begin().read(receiver([b"x" * 1000, b"x" * 25]), "")
    assert await bodies.begin().read(receiver([b"x" * 1024]), "1024") == b"x" * 1024
