"""Limits of request bodies, seen by a client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from chiasm_sidecar.front_door import bodies, chat

from tests.sidecar.conftest import (
    StartPod,
    question,
)


@pytest.mark.parametrize("announced", [True, False])
async def test_body_too_large(start_pod: StartPod, announced: bool) -> None:
    pod = await start_pod(max_body_bytes=1024)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b"x" * 1000

    data = b"x" * 2000 if announced else pieces()
    async with pod.http.post(f"{pod.url}/v1/chat/completions", data=data) as answer:
        assert answer.status == 413
        assert "larger than 1024 bytes" in (await answer.json())["error"]["message"]


async def test_bodies_on_their_way_are_limited_together(
    start_pod: StartPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "MIN_HELD_BYTES", 0)
    pod = await start_pod(max_body_bytes=2**18)
    address = f"{pod.url}/v1/chat/completions"
    go_on = asyncio.Event()
    arrived = asyncio.Queue[None]()

    async def slowly() -> AsyncIterator[bytes]:
        yield b" " * 240_000
        arrived.put_nowait(None)
        await go_on.wait()
        yield json.dumps(question()).encode()

    async def post() -> int:
        async with pod.http.post(address, data=slowly()) as answer:
            return answer.status

    early = [asyncio.create_task(post()) for _ in range(2)]
    for _ in early:
        await arrived.get()
    async with pod.http.post(address, data=b" " * 240_000) as answer:
        assert answer.status == 429
        assert answer.headers["retry-after"] == "1"
        assert "at once" in (await answer.json())["error"]["message"]
    go_on.set()
    assert await asyncio.gather(*early) == [200, 200]
    assert (await pod.chat(b" " * 240_000 + json.dumps(question()).encode()))[0] == 200


@pytest.mark.parametrize(("request_seconds", "body_seconds"), [(0.2, 60), (600, 0.2)])
async def test_body_that_does_not_arrive(
    start_pod: StartPod,
    monkeypatch: pytest.MonkeyPatch,
    request_seconds: float,
    body_seconds: float,
) -> None:
    monkeypatch.setattr(chat, "MAX_BODY_SECONDS", body_seconds)
    pod = await start_pod(request_timeout_seconds=request_seconds)

    async def pieces() -> AsyncIterator[bytes]:
        yield b"{"
        await forever_still()

    forever_still = asyncio.Event().wait
    async with pod.http.post(f"{pod.url}/v1/chat/completions", data=pieces()) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["code"] == "request_timeout"
