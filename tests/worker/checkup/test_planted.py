"""What is planted in a real worker is found, and nothing else; in a sound one nothing is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from chiasm_contract.checkup import CHECKS
from chiasm_contract.config import EngineLimits, WorkerConfig
from chiasm_contract.messages import IdentityReport
from chiasm_worker.checkup import checkup
from chiasm_worker.engine.engine import Engine
from chiasm_worker.kvcache.block_pool import BlockPool

from tests.worker.checkup.conftest import look
from tests.worker.checkup.faults import BOTTLENECKS
from tests.worker.server.folders import Folder
from tests.worker.server.running_worker import Worker, events, serving


async def test_a_sound_worker_has_no_finding(worker: Worker, engine: Engine) -> None:
    told = await look(worker)
    assert told.findings == ()
    assert told.missed == ()
    assert [each.check for each in told.looks] == list(CHECKS[:4])
    engine.scheduler.check()


@pytest.mark.parametrize("name", BOTTLENECKS)
async def test_a_planted_bottleneck_is_found_and_nothing_else(
    name: str, worker: Worker, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, plant = BOTTLENECKS[name]
    assert (await look(worker)).findings == ()
    with monkeypatch.context() as patch:
        plant(engine, patch)
        told = await look(worker)
    assert [finding.check for finding in told.findings] == [check], told.findings
    assert [each.check for each in told.looks] == list(CHECKS[:4])


async def test_a_pool_that_is_full_for_a_moment_hides_nothing(
    worker: Worker, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = checkup.visibility_faults, []

    def at_first_full(backend: Any, pool: BlockPool, *more: Any) -> list[str] | None:
        blocks = [] if asked else pool.allocate(pool.num_allocatable)
        assert blocks is not None
        asked.append(real(backend, pool, *more))
        pool.release(blocks)
        return asked[-1]

    done = asyncio.Event()

    async def keep_asking() -> None:
        while not done.is_set():
            await answer(worker, "hello")

    asking = [asyncio.create_task(keep_asking()) for _ in range(6)]
    check, plant = BOTTLENECKS["attention that forgets the beginning"]
    with monkeypatch.context() as patch:
        plant(engine, patch)
        patch.setattr(checkup, "visibility_faults", at_first_full)
        told = await look(worker)
    done.set()
    await asyncio.gather(*asking)
    assert asked[0] is None
    assert asked[-1] is not None
    assert [finding.check for finding in told.findings] == [check], told.findings


async def test_changed_files_are_found_and_named(worker: Worker, folder: Folder) -> None:
    folder.hold("b")
    [finding] = (await look(worker)).findings
    assert (finding.check, finding.severity) == ("identity", "warning")
    for part in ("language", "vision_encoder", "projector"):
        assert f"compute.weights.{part}" in finding.what
    # Once they are what is served, nothing is wrong any more.
    assert (await worker.client.post("/-/reload")).status_code == 200
    assert (await look(worker)).findings == ()


async def test_a_changed_processor_is_found_and_named(
    worker: Worker, folder: Folder, tmp_path: Any
) -> None:
    beside = tmp_path / "changed"
    beside.mkdir()
    for file in folder.path.iterdir():
        (beside / file.name).write_bytes(file.read_bytes())
    template = beside / "chat_template.jinja"
    template.write_text(template.read_text() + " ")
    folder.path.unlink()
    folder.path.symlink_to(beside)
    [finding] = (await look(worker)).findings
    assert "compute.processor.config differ" in finding.what


async def test_files_that_are_gone_are_found(worker: Worker, folder: Folder) -> None:
    folder.path.unlink()
    [finding] = (await look(worker)).findings
    assert (finding.check, finding.where) == ("identity", "the model's folder")
    assert "cannot be read any more" in finding.what


async def test_an_engine_that_is_not_what_it_says_is_found(worker: Worker) -> None:
    serving = worker.state.serving
    assert serving is not None
    fields = {**serving.identity.fields, "repr.block_size": 64}
    said = IdentityReport(**{**serving.identity.model_dump(), "fields": fields})
    object.__setattr__(serving, "identity", said)
    told = await look(worker)
    assert {finding.check for finding in told.findings} == {"identity"}
    assert any("repr.block_size is said to be 64 and is 8" in f.what for f in told.findings)


async def answer(worker: Worker, words: str, *pictures: bytes) -> list[int]:
    *tokens, _ = events(await worker.generate(words, pictures, max_tokens=40, ignore_eos=True))
    return [token_id for token in tokens for token_id in token.token_ids]


async def test_under_load_nothing_is_found_and_answers_stay_the_same(
    config: WorkerConfig, picture: Callable[..., bytes]
) -> None:
    """Chunks, prefix hits, pictures and preemptions of others beside the looks."""
    limits = EngineLimits(
        kv_cache_bytes=2**20, max_model_len=256, block_size=8, max_num_batched_tokens=32
    )
    async with serving(config.model_copy(update={"engine": limits})) as worker:
        asked = [("What?", picture(1)), ("And this?", picture(2)), ("x" * 60,), ("y" * 90,)]
        alone = [await answer(worker, *each) for each in asked]
        done = asyncio.Event()

        async def keep_asking(number: int) -> None:
            while not done.is_set():
                assert await answer(worker, *asked[number]) == alone[number]

        asking = [asyncio.create_task(keep_asking(i)) for i in range(len(asked))]
        for _ in range(3):
            told = await look(worker)
            assert told.findings == ()
            assert {each.check for each in told.missed} <= {"drift"}
        done.set()
        await asyncio.gather(*asking)
        assert worker.state.serving is not None
        engine = worker.state.serving.service.engine
        engine.scheduler.check()
        assert engine.pool.num_used == 0


async def test_a_look_leaves_nothing_behind(worker: Worker, engine: Engine) -> None:
    await answer(worker, "hello")
    before = (engine.pool.num_cached, engine.pool.num_findable.copy())
    await look(worker)
    assert (engine.pool.num_cached, engine.pool.num_findable) == before
    assert engine.runner.watcher is None
    assert engine._live == {}
    engine.scheduler.check()


async def test_an_engine_that_its_own_rules_have_stopped_is_found(
    worker: Worker, engine: Engine
) -> None:
    """By blocks that have leaked until nothing could be scheduled any more."""
    held = engine.pool.allocate(engine.pool.num_blocks - 1)
    assert held is not None
    response = await worker.generate("hello", (), max_tokens=40)
    assert "stopped" in response.text
    told = await look(worker)
    [finding] = told.findings
    assert (finding.check, finding.severity) == ("pool", "critical")
    assert finding.what.startswith("The engine has stopped: Nothing was scheduled")
    assert finding.where == f"{len(held)} held by no request"
    assert {each.check for each in told.missed} == {"attention", "drift", "identity"}


async def test_those_who_ask_at_the_same_time_have_the_same_report(worker: Worker) -> None:
    one, other = await asyncio.gather(look(worker), look(worker))
    assert one == other
    assert (await worker.client.get("/-/checkup")).status_code == 405


async def test_where_blocks_have_leaked_a_look_does_not_stop_the_engine(
    worker: Worker, engine: Engine
) -> None:
    """A request that finds no room in a pool that should be empty would."""
    held = engine.pool.allocate(engine.pool.num_blocks - 1)
    assert held is not None
    try:
        told = await look(worker)
    finally:
        engine.pool.release(held)
    assert len(await answer(worker, "hello")) == 40
    assert [finding.check for finding in told.findings] == ["pool"]
    [missed] = told.missed
    assert missed.check == "drift"
    assert "leave no room" in missed.words
