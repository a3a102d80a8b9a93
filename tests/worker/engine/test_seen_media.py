"""Media that were seen before: the encoder seldom runs again, and then it gets its inputs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract.config import EngineLimits, WorkerConfig
from chiasm_worker.engine.engine import Engine
from chiasm_worker.equality import Conversation, Prepared, Reference, ask
from chiasm_worker.modality import request_media
from chiasm_worker.modality.shared_media import FileInputs
from chiasm_worker.models.tiny.clips import write_clip, write_sound
from chiasm_worker.request import SamplingParams

from tests.worker.server.running_worker import Worker, events, serving

KINDS = {
    "qwen3-grouped": "image", "onevision-qwen2": "image", "mllama-grouped": "image",
    "gemma3-narrow-window": "image", "qwen2.5-grouped": "video", "qwen2-audio": "audio",
}  # fmt: skip


def about(kind: str, picture: bytes) -> Conversation:
    given = {"image": {"pictures": [picture]}, "video": {"videos": [write_clip(1)]},
             "audio": {"sounds": [write_sound(1)]}}  # fmt: skip
    return ask("What is this?", **given[kind])


def forget_everything(engine: Engine) -> None:
    """Give up all that the cache holds."""
    held = engine.pool.allocate(engine.pool.num_blocks)
    assert held is not None
    engine.pool.release(held)
    assert not any(engine.pool.num_findable.values())


@pytest.mark.parametrize("name", KINDS)
def test_what_was_evicted_meanwhile_is_encoded_again(
    name: str,
    prepared: Callable[[str], Prepared],
    reference: Callable[[str], Reference],
    picture: Callable[..., bytes],
):
    """The fault: a request counts on an encoder's output that is gone when its turn comes."""
    asked = about(KINDS[name], picture(4, 90, 70))
    model = Prepared(prepared(name).model)
    want = reference(name).generate(asked, 10)
    engine = model.engine()

    def answer(evict: bool) -> list[int]:
        prompt, inputs = model.prompt(asked)
        is_known = engine.runner.encoding.num_items > 0
        assert isinstance(inputs[0], FileInputs) == is_known
        assert engine.to_encode(prompt) == [not is_known]
        request = engine.make_request("r", prompt, SamplingParams(10))
        if evict:
            forget_everything(engine)
            assert engine.to_encode(prompt) == [True]
        engine.add(request, inputs)
        while engine.has_requests:
            engine.step()
            engine.scheduler.check()
        return list(request.output_token_ids)

    for num_encoded, evict in ((1, False), (2, True), (2, False)):
        assert answer(evict) == want
        assert engine.runner.encoding.num_items == num_encoded


def test_what_was_preempted_finds_its_inputs_again(
    prepared: Callable[[str], Prepared],
    reference: Callable[[str], Reference],
    picture: Callable[..., bytes],
):
    name, asked = "qwen3-grouped", ask("What are these?", [picture(4, 90, 70), picture(5)])
    model = Prepared(prepared(name).model)
    want = reference(name).generate(asked, 10)
    model.prompt(asked)
    engine = model.engine(max_num_batched_tokens=5)
    request = model.add(engine, "r", asked, SamplingParams(10))
    for preemptions in range(4):
        for _ in range(2 + preemptions):
            engine.step()
        engine.scheduler._preempt(request)
        forget_everything(engine)
    while engine.has_requests:
        engine.step()
    assert list(request.output_token_ids) == want
    assert engine.runner.encoding.num_items > 2


def test_a_file_that_cannot_be_read_again_ends_its_own_request_only(
    prepared: Callable[[str], Prepared],
    reference: Callable[[str], Reference],
    picture: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
):
    spoilt, fine = ask("What is it?", [picture(4)]), ask("What is that?", [picture(5)])
    model = Prepared(prepared("qwen3-grouped").model)
    for asked in (spoilt, fine):
        model.prompt(asked)
    engine = model.engine()
    model.add(engine, "spoilt", spoilt, SamplingParams(10))
    request = model.add(engine, "fine", fine, SamplingParams(10))
    original = request_media.decode_image

    def fails(data: bytes, *given: Any) -> Any:
        if data == spoilt.pictures[0]:
            raise MemoryError
        return original(data, *given)

    monkeypatch.setattr(request_media, "decode_image", fails)
    progress = []
    while engine.has_requests:
        progress += engine.step()
        engine.scheduler.check()
    assert {each.request_id for each in progress if each.failed} == {"spoilt"}
    assert list(request.output_token_ids) == reference("qwen3-grouped").generate(fine, 10)


def test_outputs_that_a_prefix_hit_passes_by_are_not_asked_for(
    prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    """In a long talk K and V of an old picture are wanted in each turn, its output never is."""
    model = prepared("qwen3-grouped")
    engine = model.engine(block_size=8)
    asked = ask(
        "What are these, and what do they do here in such a place?", [picture(4), picture(5)]
    )
    model.generate(engine, [asked], 2)
    prompt, _ = model.prompt(asked)
    assert engine.to_encode(prompt) == [False, False]
    root = engine.make_request("r", prompt, SamplingParams(1)).scope.root
    for span in prompt.media:
        handle = engine.media_cache.acquire(root, span.item)
        assert handle is not None
        engine.pool.uncommit(handle.block_ids)
        engine.media_cache.release(handle)
    assert not any(engine.media_cache.contains(root, span.item) for span in prompt.media)
    assert engine.to_encode(prompt) == [False, False]
    forget_everything(engine)
    assert engine.to_encode(prompt) == [True, True]


@pytest.fixture
def decoders(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that decoded a picture, in order."""
    threads: list[str] = []
    original = request_media.decode_image

    def noted(*given: Any) -> Any:
        threads.append(threading.current_thread().name)
        return original(*given)

    monkeypatch.setattr(request_media, "decode_image", noted)
    return threads


async def test_who_decodes_a_picture_and_when(
    tmp_path: Path,
    tiny_folder: Callable[[str], Path],
    picture: Callable[..., bytes],
    decoders: list[str],
    monkeypatch: pytest.MonkeyPatch,
):
    config = WorkerConfig(
        model_id="tiny",
        model_path=tiny_folder("qwen3-grouped"),
        num_threads=1,
        socket_path=tmp_path / "w.sock",
        engine=EngineLimits(kv_cache_bytes=2**22, max_model_len=512),
    )
    shown = picture(4, 90, 70)

    async def answer(worker: Worker) -> list[int]:
        answered = events(await worker.generate("What is it?", (shown,)))
        return [token for event in answered[:-1] for token in event.token_ids]

    async with serving(config) as worker:
        assert worker.state.serving is not None
        service = worker.state.serving.service
        want = await answer(worker)
        assert [name.split("_")[0] for name in decoders] == ["media"]
        assert await answer(worker) == want
        assert len(decoders) == 1  # all that it needs is there
        forget_everything(service.engine)
        assert await answer(worker) == want
        assert [name.split("_")[0] for name in decoders] == ["media", "media"]
        # Evicted between the guess and the request's turn.
        forget_everything(service.engine)
        monkeypatch.setattr(
            service.engine, "to_encode", lambda prompt, _: [False] * len(prompt.media)
        )
        assert await answer(worker) == want
        assert decoders[2:] == ["engine"]
        assert service._media_room.num_bytes == 0
