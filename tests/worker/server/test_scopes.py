"""Requests of different scopes share nothing: no block, no encoder output, no work already done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract import messages
from chiasm_contract.config import EngineLimits, ImageLimits, WorkerConfig
from chiasm_contract.errors import Overloaded
from chiasm_contract.fingerprint import SHARED_SCOPE_FP
from chiasm_contract.messages import Usage
from chiasm_worker.modality.shared_media import MediaInputs

from tests.worker.server.running_worker import Worker, body, events, serving

A, B = "a" * 64, "b" * 64


@pytest.fixture(params=["qwen3-grouped", "llava-clip-llama", "mllama-grouped"])
def config(
    request: pytest.FixtureRequest, tmp_path: Path, tiny_folder: Callable[[str], Path]
) -> WorkerConfig:
    """Pictures among the tokens, with M-RoPE and with plain positions; and by cross-attention."""
    return WorkerConfig(
        model_id="tiny",
        model_path=tiny_folder(request.param),
        num_threads=1,
        socket_path=tmp_path / "w.sock",
        engine=EngineLimits(kv_cache_bytes=2**23, max_model_len=512, block_size=8),
        images=ImageLimits(max_per_prompt=2, max_bytes=40_000),
    )


async def asked(
    worker: Worker, picture: bytes, scope_fp: str, **sampling: Any
) -> tuple[str, Usage]:
    """The answer's text and usage."""
    *tokens, finish = events(
        await worker.generate("hello", (picture,), scope_fp=scope_fp, **sampling)
    )
    return "".join(token.text for token in tokens), finish.usage


def work(worker: Worker) -> tuple[int, ...]:
    """All that was computed so far."""
    assert worker.state.serving is not None
    engine = worker.state.serving.service.engine
    encoding = engine.runner.encoding
    return (
        engine.totals.steps,
        engine.totals.step_tokens,
        encoding.num_items,
        encoding.num_rows,
        engine.scheduler.counters.prefix_hit_tokens,
        engine.scheduler.counters.media_hits,
    )


async def test_a_request_of_another_scope_does_all_the_work_again(
    worker: Worker, picture: Callable[..., bytes]
) -> None:
    """The fault: B learns what A asked, from `cached_tokens` or from the time that it waits."""
    cold, spent = {}, {}
    for scope_fp in (A, B, SHARED_SCOPE_FP):
        before = work(worker)
        cold[scope_fp] = await asked(worker, picture(1), scope_fp)
        spent[scope_fp] = tuple(b - a for a, b in zip(before, work(worker), strict=True))
    assert spent[A] == spent[B] == spent[SHARED_SCOPE_FP]
    assert spent[A][2] == 1, "the picture is encoded anew for each"
    assert cold[A] == cold[B] == cold[SHARED_SCOPE_FP]
    assert cold[A][1].cached_tokens == 0
    assert worker.state.serving is not None
    encoding = worker.state.serving.service.engine.runner.encoding
    num_encoded = encoding.num_items
    for scope_fp in (A, B, SHARED_SCOPE_FP):
        text, usage = await asked(worker, picture(1), scope_fp)
        assert text == cold[scope_fp][0]
        assert usage.cached_tokens > 0, "each finds its own"
    assert encoding.num_items == num_encoded


async def test_scopes_that_are_computed_together_share_nothing(
    worker: Worker, picture: Callable[..., bytes]
) -> None:
    """The fault: blocks of equal content that arise in one step become one block."""
    answers = await asyncio.gather(*(asked(worker, picture(2), scope) for scope in (A, B, A, B)))
    assert len({text for text, _ in answers}) == 1
    assert worker.state.serving is not None
    engine = worker.state.serving.service.engine
    assert engine.runner.encoding.num_items == 2
    again = [await asked(worker, picture(2), scope) for scope in (A, B)]
    assert again[0][1] == again[1][1]
    before = engine.pool.num_findable.total()
    await asked(worker, picture(2), "c" * 64)
    assert engine.pool.num_findable.total() * 2 == before * 3, "each scope has blocks of its own"
    assert engine.runner.encoding.num_items == 3


async def test_pictures_of_other_scopes_take_room_of_their_own(
    config: WorkerConfig, picture: Callable[..., bytes]
) -> None:
    """The fault: B's request is let in beside A's only because A shows the same picture."""
    async with serving(config) as worker:
        assert worker.state.serving is not None
        service = worker.state.serving.service
        inputs = _inputs(worker, picture(3), A)
        service._media_room.max_bytes = sum(each.num_bytes for each in inputs)
        with service.media(inputs):
            with service.media(_inputs(worker, picture(3), A)):
                pass
            with pytest.raises(Overloaded), service.media(_inputs(worker, picture(3), B)):
                pass


def _inputs(worker: Worker, picture: bytes, scope_fp: str) -> Sequence[MediaInputs]:
    serving = worker.state.serving
    assert serving is not None
    engine = serving.service.engine
    head, files = messages.decode_request(body("hello", (picture,), scope_fp=scope_fp))
    return serving.generation.reading.prepare(head, files, engine, engine.epoch)[1]


@pytest.mark.parametrize("scope_fp", ["", "acme", "A" * 64, "a" * 63, None])
async def test_a_scope_is_64_hex_digits(worker: Worker, scope_fp: str | None) -> None:
    whole = body("hello", scope_fp=A).replace(
        f'"{A}"'.encode(), b"null" if scope_fp is None else f'"{scope_fp}"'.encode()
    )
    length = int.from_bytes(whole[:4], "big") + len(whole) - len(body("hello", scope_fp=A))
    response = await worker.client.post("/generate", content=length.to_bytes(4, "big") + whole[4:])
    assert response.status_code == 400
    assert response.json()["message"].startswith("scope_fp: ")
