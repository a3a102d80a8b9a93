"""A running worker with a tiny model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from chiasm_contract.config import ImageLimits, WorkerConfig

from tests.worker.server.running_worker import Worker, serving, tiny_config


@pytest.fixture
def config(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> WorkerConfig:
    return tiny_config(
        tmp_path,
        tiny_folder("qwen3-grouped"),
        images=ImageLimits(max_per_prompt=2, max_bytes=40_000),
    )


@pytest.fixture
async def worker(config: WorkerConfig) -> AsyncIterator[Worker]:
    async with serving(config) as running:
        yield running
