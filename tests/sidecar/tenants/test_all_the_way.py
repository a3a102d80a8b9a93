"""From an API key to the worker's cache: a tenant finds what it asked before, nobody else does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from chiasm_contract.config import EngineLimits, SidecarConfig, WorkerConfig
from chiasm_contract.tenants import TenantKeys
from chiasm_sidecar.server import listen, running
from chiasm_worker.main import loading, web_server
from chiasm_worker.models.tiny import TINY_MODELS, write_tiny_model
from chiasm_worker.server import WorkerState

from tests.sidecar.conftest import data_url, png, question
from tests.sidecar.tenants.conftest import ACME, GLOBEX

ASKED = question(data_url(png(64, 48)), max_tokens=4, temperature=0)


@pytest.fixture
async def worker_state(tmp_path: Path) -> AsyncIterator[WorkerState]:
    (tiny,) = (tiny for tiny in TINY_MODELS if tiny.name == "qwen3-grouped")
    state = WorkerState(
        WorkerConfig(
            model_id="demo",
            model_path=write_tiny_model(tiny, tmp_path / "model"),
            num_threads=1,
            engine=EngineLimits(kv_cache_bytes=2**22, max_model_len=512, block_size=8),
            socket_path=tmp_path / "worker.sock",
        )
    )
    server = web_server(state)
    async with loading(state):
        task = asyncio.create_task(server.serve())
        yield state
        server.should_exit = True
        await task


@asynccontextmanager
async def front_door(state: WorkerState, keys: TenantKeys) -> AsyncIterator[openai.AsyncOpenAI]:
    """A sidecar in front of the worker, and a client of it without a key."""
    config = SidecarConfig(
        model_id="demo",
        worker_socket=state.config.socket_path,
        host="127.0.0.1",
        tenants=keys,
    )
    api, metrics = listen("127.0.0.1", 0), listen("127.0.0.1", 0)
    base_url = f"http://127.0.0.1:{api.getsockname()[1]}/v1"
    async with running(config, api, metrics) as pod:
        async with asyncio.timeout(60):
            while not pod.readiness.state.ready:  # noqa: ASYNC110 - polled, like a probe
                await asyncio.sleep(0.02)
        async with openai.AsyncOpenAI(base_url=base_url, api_key="-", max_retries=0) as client:
            yield client


async def cached_tokens(client: openai.AsyncOpenAI, key: str | None) -> int:
    headers: Any = {"Authorization": openai.omit if key is None else f"Bearer {key}"}
    answer = await client.chat.completions.create(**ASKED, extra_headers=headers)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    return answer.usage.prompt_tokens_details.cached_tokens or 0


async def test_only_the_same_tenant_hits(worker_state: WorkerState, paths: TenantKeys) -> None:
    optional = paths.model_copy(update={"required": False})
    async with front_door(worker_state, optional) as client:
        assert worker_state.serving is not None
        encoding = worker_state.serving.service.engine.runner.encoding
        before = encoding.num_items
        assert [await cached_tokens(client, key) for key in (ACME, GLOBEX, None)] == [0, 0, 0]
        assert encoding.num_items == before + 3
        hits = [await cached_tokens(client, key) for key in (ACME, GLOBEX, None)]
        assert hits[0] == hits[1] == hits[2] > 0
        assert encoding.num_items == before + 3
    # Another process with the same server key: the same scopes.
    async with front_door(worker_state, paths) as client:
        assert await cached_tokens(client, ACME) == hits[0]


async def test_another_server_key_finds_nothing(
    worker_state: WorkerState, paths: TenantKeys, server_key: Any
) -> None:
    async with front_door(worker_state, paths) as client:
        assert await cached_tokens(client, ACME) == 0
        assert await cached_tokens(client, ACME) > 0
    server_key.change(**{"server-key": "t" * 40})
    async with front_door(worker_state, paths) as client:
        assert await cached_tokens(client, ACME) == 0
