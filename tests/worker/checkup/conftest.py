"""A running worker with a tiny model, and a look at it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from chiasm_contract.checkup import CHECKUP_PATH, CheckupReport
from chiasm_contract.config import EngineLimits, ImageLimits, WorkerConfig
from chiasm_worker.engine.engine import Engine

from tests.worker.server.folders import Folder
from tests.worker.server.running_worker import Worker, serving, tiny_config


@pytest.fixture
def config(tmp_path: Path, folder: Folder) -> WorkerConfig:
    """A folder of its own, that tests may exchange; blocks so small that prompts fill several."""
    return tiny_config(
        tmp_path,
        folder.path,
        images=ImageLimits(max_per_prompt=2, max_bytes=40_000),
        engine=EngineLimits(kv_cache_bytes=2**22, max_model_len=512, block_size=8),
    )


@pytest.fixture
async def worker(config: WorkerConfig) -> AsyncIterator[Worker]:
    async with serving(config) as running:
        yield running


@pytest.fixture
def engine(worker: Worker) -> Engine:
    assert worker.state.serving is not None
    return worker.state.serving.service.engine


async def look(worker: Worker) -> CheckupReport:
    """The worker's report, over its socket."""
    response = await worker.client.post(CHECKUP_PATH)
    assert response.status_code == 200, response.text
    return CheckupReport.model_validate_json(response.text)
