"""A worker's server on a real Unix socket, and a client of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from chiasm_contract import messages
from chiasm_contract.config import EngineLimits, WorkerConfig
from chiasm_contract.fingerprint import SHARED_SCOPE_FP
from chiasm_contract.messages import (
    AudioPart,
    ChatMessage,
    ContentPart,
    GenerateHead,
    ImagePart,
    TextPart,
    VideoPart,
)
from chiasm_contract.sampling import Sampling
from chiasm_worker.main import loading, web_server
from chiasm_worker.server import WorkerState


def tiny_config(folder: Path, model_path: Path, **changes: Any) -> WorkerConfig:
    """A worker with a small pool, whose socket is in a folder."""
    plain: dict[str, Any] = {
        "model_id": "tiny",
        "model_path": model_path,
        "num_threads": 1,
        "socket_path": folder / "w.sock",
        "engine": EngineLimits(kv_cache_bytes=2**22, max_model_len=512),
    }
    return WorkerConfig.model_validate(plain | changes)


class Worker:
    """A running server and a client of it."""

    def __init__(
        self, state: WorkerState, server: uvicorn.Server, client: httpx.AsyncClient
    ) -> None:
        self.state = state
        self.server = server
        self.client = client

    async def generate(
        self,
        text: str = "hello",
        pictures: tuple[bytes, ...] = (),
        videos: tuple[bytes, ...] = (),
        sounds: tuple[bytes, ...] = (),
        **sampling: Any,
    ) -> httpx.Response:
        content = body(text, pictures, videos, sounds, **sampling)
        return await self.client.post("/generate", content=content)


def body(
    text: str,
    pictures: tuple[bytes, ...] = (),
    videos: tuple[bytes, ...] = (),
    sounds: tuple[bytes, ...] = (),
    priority: int = 0,
    scope_fp: str = SHARED_SCOPE_FP,
    **sampling: Any,
) -> bytes:
    parts: list[ContentPart] = [ImagePart(index=i) for i in range(len(pictures))]
    parts += [VideoPart(index=i) for i in range(len(videos))]
    parts += [AudioPart(index=i) for i in range(len(sounds))]
    head = GenerateHead(
        request_id="same for all",
        messages=(ChatMessage(role="user", content=(*parts, TextPart(text=text))),),
        sampling=Sampling(**{"temperature": 0, "max_tokens": 8, **sampling}),
        priority=priority,
        scope_fp=scope_fp,
    )
    return messages.encode_request(head, messages.MediaFiles(pictures, videos, sounds))


def events(response: httpx.Response) -> list[Any]:
    assert response.status_code == 200, response.text
    return [messages.EVENT.validate_json(line) for line in response.text.splitlines()]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the engine's thread sets no event
            await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(config: WorkerConfig, wait: bool = True) -> AsyncIterator[Worker]:
    state = WorkerState(config)
    server = web_server(state)
    transport = httpx.AsyncHTTPTransport(uds=str(config.socket_path))
    async with (
        loading(state),
        httpx.AsyncClient(transport=transport, base_url="http://w", timeout=60) as client,
    ):
        task = asyncio.create_task(server.serve())
        await until(lambda: server.started)
        if wait:
            await until(lambda: state.serving is not None or state.load_failure is not None)
            assert state.load_failure is None
        try:
            yield Worker(state, server, client)
        finally:
            server.should_exit = True
            await task
