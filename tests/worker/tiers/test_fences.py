"""What is on its way to or from the tiers when weights are swapped is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from chiasm_contract.config import EngineLimits, ImageLimits, WorkerConfig
from chiasm_contract.tiers import BlockService
from chiasm_worker.engine.engine import Engine
from chiasm_worker.tiers.wanted import Patience

from tests.worker.server.folders import Folder
from tests.worker.server.running_worker import Worker, events, serving, until
from tests.worker.tiers import block_service
from tests.worker.tiers.block_service import Service

WORDS = "What stands left of the tin, and what behind it? Answer in a word or two, please."


@pytest.fixture
def config(tmp_path: Path, folder: Folder) -> WorkerConfig:
    return WorkerConfig(
        model_id="tiny",
        model_path=folder.path,
        num_threads=1,
        socket_path=tmp_path / "w.sock",
        engine=EngineLimits(kv_cache_bytes=2**22, max_model_len=512),
        images=ImageLimits(max_per_prompt=2, max_bytes=40_000),
        block_service=BlockService(socket_path=tmp_path / "kv.sock"),
    )


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with block_service.serving(Service(tmp_path, 256, 256)) as one:
        yield one


def engine_of(worker: Worker) -> Engine:
    assert worker.state.serving is not None
    return worker.state.serving.service.engine


async def answer(worker: Worker, *pictures: bytes) -> list[int]:
    response = await worker.generate(WORDS, pictures, ignore_eos=True, max_tokens=6)
    *tokens, _ = events(response)
    return [token_id for token in tokens for token_id in token.token_ids]


async def connected(worker: Worker) -> None:
    await until(lambda: engine_of(worker).tier_link.staging is not None)


async def kept(worker: Worker) -> None:
    counters = engine_of(worker).tier_link.counters
    await until(lambda: 0 < counters.offered_blocks.total() == counters.stored.total())


async def reload(worker: Worker) -> str:
    """The new compute_fp."""
    response = await worker.client.post("/-/reload")
    assert response.status_code == 200, response.text
    return str(response.json()["compute_fp"])


async def test_the_service_is_told_the_new_generation_and_identity(
    config: WorkerConfig, folder: Folder, service: Service, picture: Callable[..., bytes]
):
    async with serving(config) as worker:
        await connected(worker)
        await answer(worker, picture(1))
        await kept(worker)
        num_old = len(service.records)
        folder.hold("b")
        compute_fp = await reload(worker)
        await connected(worker)
        old, new = service.hellos
        assert (old.engine_gen, new.engine_gen) == (0, 1)
        assert (new.compute_fp, new.incarnation) == (compute_fp, old.incarnation)
        assert old.compute_fp != new.compute_fp
        await answer(worker, picture(1))
        await kept(worker)
        counters = engine_of(worker).tier_link.counters
        assert counters.restored_tokens.total() == 0
        assert len(service.records) == 2 * num_old, "no key of before is a key of now"
        assert [store.engine_gen for store in service.stores] == sorted(
            store.engine_gen for store in service.stores
        )


async def test_a_question_that_is_open_when_the_generation_passes_brings_nothing(
    config: WorkerConfig, folder: Folder, service: Service, picture: Callable[..., bytes]
):
    async with serving(config) as first:
        await connected(first)
        want = await answer(first, picture(1))
        await kept(first)
    async with serving(config) as worker:
        await connected(worker)
        worker.state.serving.service._patience = Patience(60.0, 60.0)
        service.wait_before_found = asyncio.Event()
        service.fetches.clear()
        asking = asyncio.create_task(answer(worker, picture(1)))
        await until(lambda: bool(service.fetches))
        folder.hold("b")
        await reload(worker)
        service.wait_before_found.set()
        assert await asking == want, "read by the old model, computed by the old model"
        counters = engine_of(worker).tier_link.counters
        assert counters.fetches == {"unavailable": 1}
        assert counters.restored_tokens.total() == 0


async def test_back_on_older_weights_their_blocks_come_from_the_tiers(
    config: WorkerConfig, folder: Folder, service: Service, picture: Callable[..., bytes]
):
    async with serving(config) as first:
        await connected(first)
        want = await answer(first, picture(1))
        await kept(first)
    folder.hold("b")
    async with serving(config) as worker:
        await connected(worker)
        assert await answer(worker, picture(1)) != want
        assert engine_of(worker).tier_link.counters.restored_tokens.total() == 0
        folder.hold("a")
        await reload(worker)
        await connected(worker)
        num_encodes = engine_of(worker).runner.encoding.num_items
        assert await answer(worker, picture(1)) == want
        assert engine_of(worker).runner.encoding.num_items == num_encodes
        assert engine_of(worker).tier_link.counters.restored_tokens.total() > 0


async def test_an_answer_that_outlives_its_weights_offers_nothing_any_more(
    config: WorkerConfig, service: Service, folder: Folder, picture: Callable[..., bytes]
):
    """What it computes is right, but for weights that nobody serves: its place is not theirs."""
    async with serving(config) as worker:
        await connected(worker)
        engine = engine_of(worker)
        running = asyncio.create_task(
            worker.generate("x" * 300, ignore_eos=True, max_tokens=150)
        )  # A chain of text that is long enough to be offered as it grows.
        await until(lambda: engine.tier_link.counters.offered_blocks.total() > 0)
        folder.hold("b")
        await reload(worker)
        num_stores = len(service.stores)
        await running
        assert {store.engine_gen for store in service.stores[num_stores:]} <= {1}
        assert not engine._live
