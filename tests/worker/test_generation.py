"""Sampling fields and several choices, from a request's head to its events."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract.config import EngineLimits, WorkerConfig
from chiasm_contract.messages import ErrorEvent, FinishEvent, TokenEvent
from chiasm_worker.engine.answer import Answer, Piece
from chiasm_worker.engine.sampler import SampledToken

from tests.worker.server.running_worker import Worker, body, events, serving, until


@pytest.fixture
async def worker(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> AsyncIterator[Worker]:
    config = WorkerConfig(
        model_id="tiny",
        model_path=tiny_folder("qwen3-grouped"),
        num_threads=1,
        socket_path=tmp_path / "w.sock",
        engine=EngineLimits(
            kv_cache_bytes=2**22, max_model_len=512, max_num_seqs=3, max_waiting_requests=3
        ),
    )
    async with serving(config) as running:
        yield running


def texts(answer: list[Any]) -> dict[int, str]:
    """The text of each choice."""
    found: dict[int, str] = {}
    for event in answer:
        if isinstance(event, TokenEvent):
            found[event.index] = found.get(event.index, "") + event.text
    return found


SAMPLED = {"temperature": 1.0, "seed": 11, "max_tokens": 10}


async def test_choices_interleave_and_the_last_brings_the_usage(
    worker: Worker, picture: Callable[..., bytes]
):
    answer = events(await worker.generate("hello", (picture(1),), n=4, **SAMPLED))
    ends = [event for event in answer if isinstance(event, FinishEvent)]
    assert sorted(end.index for end in ends) == [0, 1, 2, 3]
    assert [end.usage is None for end in ends] == [True, True, True, False]
    assert answer[-1] is ends[-1]
    usage = ends[-1].usage
    assert usage is not None
    assert (usage.completion_tokens, usage.image_tokens, usage.cached_tokens) == (40, 4, 0)
    indices = [event.index for event in answer if isinstance(event, TokenEvent)]
    assert indices != sorted(indices)
    alone = events(await worker.generate("hello", (picture(1),), **SAMPLED))
    assert texts(alone)[0] == texts(answer)[0]
    assert alone[-1].usage.prompt_tokens == usage.prompt_tokens
    assert worker.state.serving is not None
    assert worker.state.serving.service.engine.runner.encoding.num_items == 1


@pytest.mark.parametrize("failing", [(1,), (0, 2), (0, 1, 2)], ids=str)
async def test_the_first_choice_that_fails_ends_the_answer(
    failing: tuple[int, ...], worker: Worker, monkeypatch: pytest.MonkeyPatch
):
    """The fault: an error for each choice that fails, or tokens of the others behind it."""
    assert worker.state.serving is not None
    service = worker.state.serving.service
    push = Answer.push
    choices: dict[int, int] = {}
    count = itertools.count()

    def fragile(answer: Answer, token: SampledToken) -> Piece:
        choice = choices.setdefault(id(answer), len(choices))
        # One token of the first choice, then three steps of all: the fifth step fails.
        if next(count) >= 10 and choice in failing:
            raise RuntimeError("no such character")
        return push(answer, token)

    monkeypatch.setattr(Answer, "push", fragile)
    answer = events(await worker.generate("hello", n=3, **SAMPLED))
    assert [isinstance(event, ErrorEvent) for event in answer] == [False] * (len(answer) - 1) + [
        True
    ]
    assert len(answer) == 10 + failing[0] + 1
    await until(lambda: not service.engine.has_requests and not service._num_inside)
    assert (service.engine.pool.num_used, len(service._waiters)) == (0, 0)


async def test_more_choices_than_places_are_never_possible(worker: Worker):
    response = await worker.generate("hello", n=7)
    assert (response.status_code, response.json()["param"]) == (400, "n")
    assert "Ask for 1 to 6." in response.json()["message"]
    answers = await asyncio.gather(*(worker.generate("hello", n=4, max_tokens=60) for _ in "ab"))
    assert sorted(answer.status_code for answer in answers) == [200, 429]


async def test_a_client_that_leaves_frees_every_choice(worker: Worker):
    assert worker.state.serving is not None
    service = worker.state.serving.service
    for steps in (0, 1, 9):
        content = body("hello", n=6, max_tokens=400)
        async with worker.client.stream("POST", "/generate", content=content) as response:
            lines = response.aiter_lines()
            for _ in range(steps):
                await anext(lines)
        await until(lambda: not service.engine.has_requests and not service._num_inside)
        assert (service.engine.pool.num_used, len(service._waiters)) == (0, 0)
    assert service.engine.totals.aborted == 3


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("logit_bias", {320: 1.0}, "names token 320; this model's tokens are 0 to 319."),
        ("stop_token_ids", (3, 999), "names token 999; this model's tokens are 0 to 319."),
        ("min_tokens", 9, "is 9, but max_tokens is 8; allowed: 0 to 8."),
    ],
)
async def test_what_this_model_cannot_obey_is_refused_by_name(
    worker: Worker, field: str, value: Any, words: str
):
    response = await worker.generate("hello", **{field: value})
    assert (response.status_code, response.json()["param"]) == (400, field)
    assert words in response.json()["message"]


async def test_min_tokens_beyond_the_models_length_is_refused(worker: Worker):
    response = await worker.generate("hello", max_tokens=None, min_tokens=5000)
    assert response.json()["param"] == "min_tokens"
    assert "the model's length leaves room for" in response.json()["message"]


async def test_every_field_reaches_the_engine(worker: Worker):
    """Each field alone changes the answer, or how it ends, against the same request without it."""
    plain = events(await worker.generate("hello", **{**SAMPLED, "max_tokens": 90}))
    spoken = [e.token_ids[0] for e in plain if isinstance(e, TokenEvent)]
    short = texts(events(await worker.generate("hello", **SAMPLED)))[0]
    middle = next(part for part in short[1:].split("\ufffd") if part)
    fields: dict[str, Any] = {
        "temperature": 2.0, "top_p": 0.3, "top_k": 2, "min_p": 0.5, "seed": 12,
        "presence_penalty": 2.0, "frequency_penalty": 2.0, "repetition_penalty": 5.0,
        "logit_bias": {spoken[2]: -100.0}, "max_tokens": 9, "stop": (middle,),
        "stop_token_ids": (spoken[4],),
    }  # fmt: skip
    for field, value in fields.items():
        wishes = {**SAMPLED, "max_tokens": 90, field: value}
        assert events(await worker.generate("hello", **wishes))[:-1] != plain[:-1], field
    stopped = events(await worker.generate("hello", **SAMPLED, stop=(middle,)))
    kept = events(
        await worker.generate("hello", **SAMPLED, stop=(middle,), include_stop_str_in_output=True)
    )
    assert stopped[-1].stop_reason == kept[-1].stop_reason == middle
    assert texts(kept)[0] == texts(stopped)[0] + middle
    late = events(await worker.generate("hello", **SAMPLED, stop=(middle,), min_tokens=10))
    assert late[-1].reason == "length"
