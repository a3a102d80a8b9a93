"""Weights swapped under a running worker: what began ends as it began, what begins is as new."""

from __future__ import annotations

import asyncio
import gc
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract.config import WorkerConfig
from chiasm_contract.messages import IdentityReport
from chiasm_worker.loading import load
from prometheus_client.parser import text_string_to_metric_families

from tests.worker.server.folders import Folder
from tests.worker.server.running_worker import Worker, events, serving, until

WORDS = ("What is this?", "And what stands left of it, or behind it, or beside it?", "How are you?")


@pytest.fixture
def settings(config: WorkerConfig, folder: Folder) -> WorkerConfig:
    return config.model_copy(update={"model_path": folder.path})


@pytest.fixture
async def worker(settings: WorkerConfig) -> AsyncIterator[Worker]:
    async with serving(settings) as running:
        yield running


async def answer(worker: Worker, words: str, *pictures: bytes, **sampling: Any) -> list[int]:
    *tokens, _ = events(await worker.generate(words, pictures, ignore_eos=True, **sampling))
    return [token_id for token in tokens for token_id in token.token_ids]


async def answers(worker: Worker, picture: bytes, **sampling: Any) -> list[list[int]]:
    return [
        await answer(worker, WORDS[0], picture, **sampling),
        await answer(worker, WORDS[1], picture, **sampling),
        await answer(worker, WORDS[2], **sampling),
    ]


@pytest.fixture(scope="session")
def known_answers() -> dict[Any, list[list[int]]]:
    return {}


@pytest.fixture
async def fresh(
    settings: WorkerConfig,
    weights: Callable[[str], Path],
    tmp_path: Path,
    known_answers: dict[Any, list[list[int]]],
) -> Callable[..., Any]:
    """Which weights -> the answers of a worker that has served nothing else."""

    async def ask(which: str, picture: bytes, **sampling: Any) -> list[list[int]]:
        key = (which, picture, *sampling.items())
        if key in known_answers:
            return known_answers[key]
        own = {"model_path": weights(which), "socket_path": tmp_path / f"{which}.sock"}
        async with serving(settings.model_copy(update=own)) as other:
            known_answers[key] = await answers(other, picture, **sampling)
        return known_answers[key]

    return ask


async def reload(worker: Worker) -> IdentityReport:
    response = await worker.client.post("/-/reload")
    assert response.status_code == 200, response.text
    return IdentityReport.model_validate_json(response.text)


async def metric(worker: Worker, name: str) -> float:
    text = (await worker.client.get("/metrics")).text
    families = text_string_to_metric_families(text)
    [value] = [s.value for family in families for s in family.samples if s.name == name]
    return value


async def test_after_a_reload_answers_are_those_of_a_fresh_worker(
    worker: Worker, folder: Folder, fresh: Callable[..., Any], picture: Callable[..., bytes]
):
    before = IdentityReport.model_validate_json((await worker.client.get("/identity")).text)
    old = await answers(worker, picture(1))
    num_encodes = await metric(worker, "chiasm_worker_encode_calls_total")
    hits = await metric(worker, "vllm:prefix_cache_hits_total")
    folder.hold("b")
    after = await reload(worker)
    assert after.incarnation == before.incarnation
    assert after.compute_fp != before.compute_fp
    changed = {name for name, value in before.fields.items() if after.fields[name] != value}
    assert {name.split(".")[1] for name in changed} == {"weights"}
    assert (await worker.client.get("/identity")).json() == after.model_dump()
    assert await answers(worker, picture(1)) == await fresh("b", picture(1)) != old
    # Nothing that was cached before was found: the picture was encoded anew, and the only hit is
    # the second question's on what the first one left.
    assert await metric(worker, "chiasm_worker_encode_calls_total") == num_encodes + 1
    assert await metric(worker, "vllm:prefix_cache_hits_total") == 2 * hits
    assert await metric(worker, "chiasm_worker_engine_generation") == 1


async def test_older_blocks_are_still_there_for_the_older_weights(
    worker: Worker, folder: Folder, picture: Callable[..., bytes]
):
    old = await answers(worker, picture(1))
    for which in ("b", "a"):
        folder.hold(which)
        await reload(worker)
    num_encodes = await metric(worker, "chiasm_worker_encode_calls_total")
    assert await answers(worker, picture(1)) == old
    assert await metric(worker, "chiasm_worker_encode_calls_total") == num_encodes
    assert await metric(worker, "chiasm_worker_engine_generation") == 2


async def streams(
    worker: Worker, asked: Sequence[tuple[str, tuple[bytes, ...]]], **sampling: Any
) -> list[asyncio.Task[list[int]]]:
    """Answers that have begun."""
    tasks = [
        asyncio.create_task(answer(worker, words, *pictures, **sampling))
        for words, pictures in asked
    ]
    assert worker.state.serving is not None
    scheduler = worker.state.serving.service.engine.scheduler
    await until(
        lambda: (
            len([r for r in scheduler._running if r.num_output_tokens]) == len(tasks)
            or all(task.done() for task in tasks)
        )
    )
    return tasks


@pytest.fixture
def loaded_before(
    settings: WorkerConfig, weights: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reload that reads b takes no time, so that answers still run when it swaps."""
    b = load(settings.model_copy(update={"model_path": weights("b")}))
    monkeypatch.setattr("chiasm_worker.serving.load", lambda _: b)


@pytest.mark.usefixtures("loaded_before")
@pytest.mark.parametrize("wait_seconds", [0.0, 0.05])
async def test_answers_that_run_end_on_the_weights_that_they_began_with(
    wait_seconds: float,
    worker: Worker,
    fresh: Callable[..., Any],
    picture: Callable[..., bytes],
):
    long = {"max_tokens": 300}
    asked = [(WORDS[0], (picture(1),)), (WORDS[1], (picture(1),)), (WORDS[2], ())]
    running = await streams(worker, asked, **long)
    await asyncio.sleep(wait_seconds)
    await reload(worker)
    assert worker.state.serving is not None
    engine = worker.state.serving.service.engine
    were_running = engine.num_models > 1
    new = await asyncio.gather(
        *(answer(worker, words, *pictures, **long) for words, pictures in asked)
    )
    old = await asyncio.gather(*running)
    assert were_running, "the answers were too short for this test"
    assert old == await fresh("a", picture(1), **long)
    assert new == await fresh("b", picture(1), **long)
    engine.scheduler.check()
    assert engine.pool.num_used == 0


@pytest.mark.usefixtures("loaded_before")
async def test_the_old_model_goes_with_the_last_answer_that_needs_it(
    worker: Worker, picture: Callable[..., bytes]
):
    running = await streams(worker, [(WORDS[0], (picture(1),))], max_tokens=400)
    await reload(worker)
    assert worker.state.serving is not None
    engine = worker.state.serving.service.engine
    assert engine.num_models == 2
    refused = await worker.client.post("/-/reload")
    assert refused.status_code == 429
    assert "answers that began before it still run" in refused.json()["message"]
    assert int(refused.headers["retry-after"]) > 0
    await asyncio.gather(*running)
    await until(lambda: bool(gc.collect()) or engine.num_models == 1)
    assert (await worker.client.post("/-/reload")).status_code == 200


async def test_one_reload_at_a_time(worker: Worker):
    first, second = await asyncio.gather(
        worker.client.post("/-/reload"), worker.client.post("/-/reload")
    )
    assert sorted([first.status_code, second.status_code]) == [200, 429]


async def test_a_folder_that_cannot_be_served_changes_nothing(
    worker: Worker, folder: Folder, tmp_path: Path, picture: Callable[..., bytes]
):
    want = await answers(worker, picture(1))
    before = (await worker.client.get("/identity")).text
    folder.path.unlink()
    for _ in range(2):
        response = await worker.client.post("/-/reload")
        assert (response.status_code, response.json()["code"]) == (400, "model_load_failed")
    folder.path.symlink_to(tmp_path)
    assert "what served before goes on" in (await worker.client.post("/-/reload")).text
    assert await answers(worker, picture(1)) == want
    assert (await worker.client.get("/identity")).text == before
    assert await metric(worker, "chiasm_worker_engine_generation") == 0


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        ("config.json", '{"quantization_config": "int4"}'),
        ("model.safetensors.index.json", "{}"),
        ("model.safetensors", "cut"),
    ],
)
async def test_a_damaged_folder_is_told(worker: Worker, folder: Folder, name: str, damaged: str):
    """The fault: an internal error, for which nobody knows the cause."""
    beside = folder.path.with_name("damaged")
    shutil.copytree(folder.path, beside)
    if name.endswith("index.json"):
        (beside / "model.safetensors").unlink()
    (beside / name).write_text(damaged)
    folder.path.unlink()
    folder.path.symlink_to(beside)
    response = await worker.client.post("/-/reload")
    assert (response.status_code, response.json()["code"]) == (400, "model_load_failed")
    assert f"{name} " in response.json()["message"]


async def test_a_model_of_another_shape_takes_a_restart(
    worker: Worker, folder: Folder, picture: Callable[..., bytes]
):
    want = await answers(worker, picture(1))
    folder.hold("c")
    response = await worker.client.post("/-/reload")
    assert response.status_code == 400
    assert "that takes another pool. Restart the worker" in response.json()["message"]
    assert await answers(worker, picture(1)) == want


async def test_requests_without_end_see_no_error_while_weights_change(
    worker: Worker, folder: Folder, fresh: Callable[..., Any], picture: Callable[..., bytes]
):
    """Each answer is wholly of the one or of the other weights."""
    right: dict[str, set[tuple[int, ...]]] = {words: set() for words in WORDS}
    for which in ("a", "b"):
        for words, tokens in zip(WORDS, await fresh(which, picture(1)), strict=True):
            right[words].add(tuple(tokens))
    done = asyncio.Event()

    async def keep_asking(words: str, pictures: tuple[bytes, ...]) -> int:
        count = 0
        while not done.is_set():
            assert tuple(await answer(worker, words, *pictures)) in right[words]
            count += 1
        return count

    asking = [
        asyncio.create_task(keep_asking(words, (picture(1),) if words != WORDS[2] else ()))
        for words in WORDS
    ]
    for which in ("b", "a", "b"):
        folder.hold(which)
        status = 429
        while status == 429:
            await asyncio.sleep(0.01)
            status = (await worker.client.post("/-/reload")).status_code
        assert status == 200
    done.set()
    assert all(count > 0 for count in await asyncio.gather(*asking))
    assert await answers(worker, picture(1)) == await fresh("b", picture(1))


async def test_only_a_post_swaps_anything(worker: Worker):
    assert (await worker.client.get("/-/reload")).status_code == 405
