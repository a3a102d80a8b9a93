"""Answers and refusals of the real server on a real Unix socket with a real (tiny) model."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from chiasm_contract import fingerprint, messages
from chiasm_contract.config import AudioLimits, EngineLimits, ImageLimits, VideoLimits, WorkerConfig
from chiasm_contract.messages import (
    ChatMessage,
    FinishEvent,
    GenerateHead,
    IdentityReport,
    MediaFiles,
    ModelCard,
    TextPart,
    TokenEvent,
)
from chiasm_contract.metric_spec import KNOWN_MODALITIES
from chiasm_contract.metric_specs import specs_of
from chiasm_worker.loading import load
from chiasm_worker.main import loading
from chiasm_worker.models.tiny.clips import write_clip, write_sound
from chiasm_worker.server import WorkerState
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.worker.server.running_worker import Worker, body, events, serving, until


async def test_an_answer_is_tokens_and_then_a_finish(worker: Worker, picture: Callable[..., bytes]):
    response = await worker.generate("hello", (picture(1),))
    assert response.headers[messages.INCARNATION_HEADER] == worker.state.incarnation
    compute_fp = worker.state.identity_report().compute_fp
    assert response.headers[messages.COMPUTE_FP_HEADER] == compute_fp
    *tokens, finish = events(response)
    assert all(isinstance(event, TokenEvent) for event in tokens)
    assert isinstance(finish, FinishEvent)
    assert (finish.reason, finish.usage.completion_tokens, len(tokens)) == ("length", 8, 8)
    assert finish.usage.image_tokens == 4
    again = events(await worker.generate("hello", (picture(1),)))
    assert [event.token_ids for event in again[:-1]] == [event.token_ids for event in tokens]
    assert again[-1].usage.cached_tokens > 0


async def test_health_model_and_identity_of_a_running_worker(worker: Worker):
    assert (await worker.client.get("/health")).json() == {"status": "ok"}
    card = ModelCard.model_validate_json((await worker.client.get("/model")).text)
    assert card == ModelCard(
        id="tiny",
        family="qwen3-vl",
        architecture="Qwen3VLForConditionalGeneration",
        max_model_len=512,
    )
    text = (await worker.client.get("/identity")).text
    report = IdentityReport.model_validate_json(text)
    identity = load(worker.state.config).identity
    assert report.fields == identity.fields()
    assert report.compute_fp == fingerprint.compute_fp(identity.compute)
    assert report.repr_fp == fingerprint.repr_fp(identity.repr)
    assert report.incarnation == worker.state.incarnation


def samples_of(text: str, name: str, label: str) -> dict[str, float]:
    """Of one metric, the label's value -> the sample's."""
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples]
    return {each.labels[label]: each.value for each in samples if each.name == name}


async def test_every_worker_metric_of_the_contract_is_exposed_and_no_other(
    worker: Worker, picture: Callable[..., bytes]
):
    for _ in range(2):
        await worker.generate("hello", (picture(1),))
    text = (await worker.client.get("/metrics")).text
    samples = {s.name: s for f in text_string_to_metric_families(text) for s in f.samples}
    assert set(samples) == {name for spec in specs_of("worker") for name in spec.sample_names}
    for spec in specs_of("worker"):
        assert set(samples[spec.name].labels) == set(spec.labels)
        for name, values in spec.labels.items():
            assert not values or samples[spec.name].labels[name] in values
    assert samples["vllm:generation_tokens_total"].value == 16
    assert samples["chiasm_worker_encode_calls_total"].value == 1
    saved = samples_of(text, "chiasm_worker_encode_calls_saved_total", "by")
    assert sum(saved.values()) == 1
    waiting = samples_of(text, "chiasm_worker_requests_waiting", "modality")
    assert waiting == dict.fromkeys(KNOWN_MODALITIES, 0)
    blocks = samples_of(text, "chiasm_worker_findable_blocks", "kind")
    record_bytes = worker.state.require().service.engine.spec.record_bytes
    sizes = {
        (sample.labels["kind"], sample.labels["modality"]): sample.value / record_bytes
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "chiasm_worker_findable_bytes" and sample.value
    }
    assert sizes == {
        (kind, "text" if kind == "text_kv" else "image"): num for kind, num in blocks.items() if num
    }
    assert samples["vllm:prefix_cache_hits_total"].value > 0
    assert samples["vllm:prompt_tokens_total"].value > 0
    assert samples["chiasm_worker_step_seconds_total"].value > 0


async def test_the_exposition_is_in_the_form_that_is_asked_for(worker: Worker):
    answer = await worker.client.get(
        "/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"}
    )
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    found = {sample.name for family in openmetrics(answer.text) for sample in family.samples}
    assert found == {name for spec in specs_of("worker") for name in spec.sample_names}


async def test_logprobs_name_tokens_and_their_bytes(worker: Worker):
    *tokens, _ = events(await worker.generate("hello", logprobs=2))
    shown = [chosen for event in tokens for chosen in event.logprobs]
    assert len(shown) == len(tokens) == 8
    for chosen in shown:
        assert len(chosen.top) == 2
        assert chosen.top[0].logprob == chosen.logprob
        assert bytes(chosen.token_bytes).decode(errors="replace") == chosen.token
    pieces = b"".join(bytes(chosen.token_bytes) for chosen in shown)
    assert pieces.decode(errors="replace") == "".join(event.text for event in tokens)


async def test_client_faults_are_4xx_before_the_first_event(
    worker: Worker, picture: Callable[..., bytes]
):
    good = picture(1)
    refusals = {
        "truncated": (await worker.generate("x", (good[:-500],)), 400, "cannot be decoded"),
        "bytes": (await worker.generate("x", (picture(1, 200, 200),)), 413, "at most 40000"),
        "count": (await worker.generate("x", (good,) * 3), 413, "brings 3 pictures; at most 2"),
        "long": (await worker.generate("x" * 600), 400, "together at most 512"),
        "frame": (await worker.client.post("/generate", content=b"12"), 400, "at least 4"),
        "head": (
            await worker.client.post("/generate", content=b"\0\0\0\2{}"),
            400,
            "request_id: Field required",
        ),
    }
    for name, (response, status, words) in refusals.items():
        assert response.status_code == status, name
        assert words in response.json()["message"], name
    unplaced = GenerateHead(
        request_id="r", messages=(ChatMessage(role="user", content=(TextPart(text="x"),)),)
    )
    response = await worker.client.post(
        "/generate", content=messages.encode_request(unplaced, MediaFiles((good,)))
    )
    assert (response.status_code, response.json()["message"][:29]) == (
        400, "Picture 1 stands in no messag",
    )  # fmt: skip


async def test_text_without_bound_is_refused_before_it_is_rendered(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
):
    assert worker.state.serving is not None
    monkeypatch.setattr(worker.state.serving.generation.reading.prompts, "build", None)
    response = await worker.generate("x" * 100_000)
    assert (response.status_code, response.json()["code"]) == (400, "context_length_exceeded")
    assert "have 100000 characters; the 512 tokens" in response.json()["message"]


async def test_videos_are_answered_and_counted(config: WorkerConfig, picture: Callable[..., bytes]):
    clips = (write_clip(1), write_clip(2, size=(64, 96)))
    videos = VideoLimits(max_per_prompt=2, max_bytes=40_000)
    async with serving(config.model_copy(update={"videos": videos})) as worker:
        *_, finish = events(await worker.generate("hello", (picture(1),), clips))
        prompt = finish.usage.prompt_tokens
        assert 0 < finish.usage.image_tokens < finish.usage.video_tokens < prompt
        refusals = {
            "too many": (await worker.generate("x", (), clips * 2), 413, "4 videos; at most 2"),
            "damaged": (await worker.generate("x", (), (clips[0][:900],)), 400, "is truncated"),
            "no video": (await worker.generate("x", (), (picture(1),)), 400, "is no video"),
            "large": (await worker.generate("x", (), (clips[0] + bytes(40_000),)), 413, "bytes"),
        }
        for name, (response, status, words) in refusals.items():
            assert (response.status_code, words in response.json()["message"]) == (status, True), (
                name
            )


async def test_sounds_are_answered_and_counted(
    config: WorkerConfig, tiny_folder: Callable[[str], Path]
):
    heard = {
        "model_path": tiny_folder("qwen2-audio"),
        "images": ImageLimits(max_per_prompt=0),
        "audios": AudioLimits(max_per_prompt=1, max_seconds=1.5),
    }
    async with serving(config.model_copy(update=heard)) as worker:
        *_, finish = events(await worker.generate("hello", sounds=(write_sound(1),)))
        assert 0 < finish.usage.audio_tokens < finish.usage.prompt_tokens
        assert finish.usage.image_tokens == finish.usage.video_tokens == 0
        long = await worker.generate("hello", sounds=(write_sound(1, 1.6),))
        assert (long.status_code, long.json()["param"]) == (413, "audios[0]")


async def test_videos_are_refused_where_none_are_allowed(worker: Worker):
    response = await worker.generate("x", (), (write_clip(1),))
    assert response.status_code == 400
    assert response.json()["message"].startswith("The request brings 1 video, but none is allowed")


async def test_a_family_without_videos_does_not_serve_where_some_are_allowed(
    config: WorkerConfig, tiny_folder: Callable[[str], Path]
):
    folder = tiny_folder("llava-clip-llama")
    wrong = config.model_copy(
        update={"model_path": folder, "videos": VideoLimits(max_per_prompt=2)}
    )
    state = WorkerState(wrong)
    async with loading(state):
        await until(lambda: state.load_failure is not None)
    assert (
        "Up to 2 videos a prompt are allowed, but the family llava takes pictures only; set "
        "spec.model.modalities.video.maxPerPrompt to 0"
    ) in str(state.load_failure)


async def test_without_max_tokens_an_answer_ends_at_the_models_length(config: WorkerConfig):
    limits = config.engine.model_copy(update={"max_model_len": 64})
    async with serving(config.model_copy(update={"engine": limits})) as worker:
        *_, finish = events(await worker.generate("hello", max_tokens=None))
        assert finish.usage.prompt_tokens + finish.usage.completion_tokens == 64


async def test_without_max_tokens_a_picture_fits_the_smallest_cache(
    config: WorkerConfig, picture: Callable[..., bytes]
):
    async with serving(config) as worker:
        assert worker.state.serving is not None
        engine = worker.state.serving.service.engine
        tokens = 2**20 // engine.spec.record_bytes * engine.spec.block_size
    limits = EngineLimits(kv_cache_bytes=2**20, max_model_len=tokens)
    async with serving(config.model_copy(update={"engine": limits})) as worker:
        *_, finish = events(await worker.generate("x", (picture(1, 90, 90),), max_tokens=None))
        assert finish.usage.completion_tokens > 0


async def test_a_full_queue_is_429_with_a_time(config: WorkerConfig, picture: Callable[..., bytes]):
    limits = config.engine.model_copy(update={"max_num_seqs": 1, "max_waiting_requests": 1})
    async with serving(config.model_copy(update={"engine": limits})) as worker:
        answers = await asyncio.gather(
            *(worker.generate(f"hello {i}", max_tokens=200) for i in range(4))
        )
        assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429]
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.json()["message"].startswith("2 answers are running or waiting")
        assert int(refused.headers["retry-after"]) >= 1
        assert (await worker.generate("hello")).status_code == 200


async def test_pictures_of_all_requests_have_one_limit(
    config: WorkerConfig, picture: Callable[..., bytes]
):
    limits = config.engine.model_copy(update={"max_media_bytes": 2**20, "max_num_seqs": 1})
    async with serving(config.model_copy(update={"engine": limits})) as worker:
        large = [picture(seed, 110, 110) for seed in range(3)]
        assert worker.state.serving is not None
        room = worker.state.serving.service._media_room
        room.max_bytes = 400_000  # one processed picture, not two
        first, again, other, words = await asyncio.gather(
            worker.generate("hello", (large[0],), max_tokens=100),
            worker.generate("hello again", (large[0],), max_tokens=100),
            worker.generate("and this?", (large[1],), max_tokens=100),
            worker.generate("words alone"),
        )
        assert [each.status_code for each in (first, again, words)] == [200, 200, 200]
        assert other.status_code == 429
        assert other.json()["message"].startswith("Media of other requests hold")
        assert int(other.headers["retry-after"]) >= 1
        assert room.num_bytes == 0
        assert (await worker.generate("and this?", (large[1],))).status_code == 200


async def test_a_lower_priority_is_answered_first(config: WorkerConfig):
    limits = config.engine.model_copy(update={"max_num_seqs": 1})
    async with serving(config.model_copy(update={"engine": limits})) as worker:
        order: list[str] = []

        async def answer(name: str, priority: int, max_tokens: int) -> None:
            content = body(name, priority=priority, max_tokens=max_tokens)
            await worker.client.post("/generate", content=content)
            order.append(name)

        assert worker.state.serving is not None
        scheduler = worker.state.serving.service.engine.scheduler
        async with asyncio.TaskGroup() as group:
            group.create_task(answer("runs already", 0, 300))
            await until(lambda: scheduler.num_running == 1)
            for name, priority in (("late", 1), ("usual", 0), ("soon", -1)):
                waiting = scheduler.num_waiting
                group.create_task(answer(name, priority, 4))
                await until(lambda waiting=waiting: scheduler.num_waiting > waiting)
        assert order == ["runs already", "soon", "usual", "late"]


async def test_clients_that_leave_free_their_blocks(worker: Worker, picture: Callable[..., bytes]):
    rng = random.Random(0)
    assert worker.state.serving is not None
    engine = worker.state.serving.service.engine

    async def leave_after(number: int) -> None:
        content = body(f"hello {number % 5}", (picture(number % 3),), max_tokens=300)
        async with worker.client.stream("POST", "/generate", content=content) as response:
            count = rng.randrange(6)
            async for _ in response.aiter_lines():
                count -= 1
                if count < 0:
                    break

    async def leave_at_once(number: int) -> None:
        task = asyncio.create_task(worker.generate(f"x {number}", (picture(9),), max_tokens=300))
        await asyncio.sleep(rng.random() * 0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    for round_ in range(6):
        calls = [leave_after, leave_at_once]
        await asyncio.gather(*(rng.choice(calls)(round_ * 8 + i) for i in range(8)))
    service = worker.state.serving.service
    await until(lambda: not engine.has_requests and not service._num_inside)
    engine.pool.check()
    assert engine.pool.num_used == 0
    assert engine.pool.num_free + engine.pool.num_cached == engine.pool.num_blocks
    assert engine.totals.aborted > 0
    assert (await worker.generate("hello")).status_code == 200


async def test_only_the_engines_thread_computes_with_several_threads(
    config: WorkerConfig, picture: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
):
    before, seen = torch.get_num_threads(), {}
    async with serving(config.model_copy(update={"num_threads": 2})) as worker:
        assert worker.state.serving is not None
        service = worker.state.serving.service
        prompts = worker.state.serving.generation.reading.prompts

        def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def run(*arguments: Any) -> Any:
                seen[name] = torch.get_num_threads()
                return call(*arguments)

            return run

        monkeypatch.setattr(service.engine, "step", watched("engine", service.engine.step))
        monkeypatch.setattr(prompts, "build", watched("media", prompts.build))
        for seed in range(3):
            events(await worker.generate("hello", (picture(seed),)))
            assert seen == {"engine": 2, "media": 1}
    torch.set_num_threads(before)
