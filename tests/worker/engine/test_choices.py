"""Several answers to one prompt: computed once, shared by reference, freed together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from chiasm_worker.engine.engine import Engine
from chiasm_worker.engine.progress import Progress
from chiasm_worker.equality import Conversation, Prepared, ask
from chiasm_worker.request import FinishReason, Request, SamplingParams


@pytest.fixture
def model(prepared: Callable[[str], Prepared]) -> Prepared:
    return prepared("qwen3-grouped")


@pytest.fixture
def conversation(picture: Callable[..., bytes]) -> Conversation:
    return ask("tell me what you see, at length", [picture(1, 100, 80), picture(2)])


SAMPLED = {"max_tokens": 12, "temperature": 1.0, "seed": 7}


def add(
    model: Prepared, engine: Engine, conversation: Conversation, count: int, **fields: Any
) -> list[Request]:
    prompt, inputs = model.prompt(conversation)
    params = SamplingParams(**{**SAMPLED, **fields})
    choices = [engine.make_request(f"c{i}", prompt, params, i) for i in range(count)]
    engine.add(choices[0], inputs, choices[1:])
    return choices


def finish(engine: Engine) -> list[Progress]:
    progress: list[Progress] = []
    while engine.has_requests:
        progress += engine.step()
        engine.pool.check()
    return progress


def outputs(choices: list[Request]) -> list[list[int]]:
    return [list(choice.output_token_ids) for choice in choices]


@pytest.mark.parametrize("chunk", [7, 512])
@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("qwen3-grouped", True),
        ("gemma3-narrow-window", True),
        ("mllama-llama3-rope", True),
        # One span in which every token sees every other: no prefix of it can be shared.
        ("paligemma2-window", False),
    ],
)
def test_the_prompt_is_computed_once_and_its_pictures_are_encoded_once(
    name: str,
    shares: bool,
    chunk: int,
    prepared: Callable[[str], Prepared],
    conversation: Conversation,
):
    model = prepared(name)
    engine = model.engine(max_num_batched_tokens=chunk)
    choices = add(model, engine, conversation, 4, ignore_eos=True)
    finish(engine)
    num_prompt, size = choices[0].num_prompt_tokens, engine.spec.block_size
    shared = (num_prompt - 1) // size * size if shares else 0
    assert num_prompt > 2 * size
    assert [choice.num_cached_tokens for choice in choices] == [0, shared, shared, shared]
    assert engine.totals.step_tokens == num_prompt + 3 * (num_prompt - shared) + 4 * 11
    assert engine.runner.encoding.num_items == 2
    assert engine.totals.prompt_tokens == num_prompt
    assert engine.totals.generation_tokens == 4 * 12


def test_choices_hold_the_prompts_blocks_by_reference(model: Prepared, conversation: Conversation):
    engine = model.engine()
    choices = add(model, engine, conversation, 4)
    while any(choice.num_output_tokens < 2 for choice in choices):
        engine.step()
    shared = (choices[0].num_prompt_tokens - 1) // engine.spec.block_size
    first = choices[0].table.block_ids
    for choice in choices[1:]:
        assert choice.table.block_ids[:shared] == first[:shared]
        assert not set(choice.table.block_ids[shared:]) & set(first)
    assert engine.pool.num_used == len({i for c in choices for i in c.table.block_ids})


def test_choices_start_before_later_arrivals(model: Prepared, conversation: Conversation):
    engine = model.engine(max_num_seqs=2)
    choices = add(model, engine, conversation, 4)
    for number in range(3):
        model.add(engine, f"late{number}", ask("hello"), SamplingParams(12, ignore_eos=True))
    started = dict.fromkeys(progress.request_id for progress in finish(engine))
    assert [name for name in started if name != "late0"][:4] == ["c0", "c1", "c2", "c3"]
    assert choices[3].num_cached_tokens == choices[1].num_cached_tokens
    assert engine.runner.encoding.num_items == 2


def test_a_choice_says_in_company_what_it_says_alone(model: Prepared, conversation: Conversation):
    engine = model.engine()
    choices = add(model, engine, conversation, 4)
    finish(engine)
    assert len(set(map(tuple, outputs(choices)))) == 4
    prompt, inputs = model.prompt(conversation)
    for i, said in enumerate(outputs(choices)):
        alone = model.engine()
        request = alone.make_request("alone", prompt, SamplingParams(**SAMPLED), i)
        alone.add(request, inputs)
        finish(alone)
        assert list(request.output_token_ids) == said


def test_choices_end_by_themselves(model: Prepared, conversation: Conversation):
    engine = model.engine()
    choices = add(model, engine, conversation, 3)
    finish(engine)
    said = outputs(choices)
    stop = frozenset({said[1][4]})
    engine = model.engine()
    choices = add(model, engine, conversation, 3, stop_token_ids=stop)
    ends = {p.choice: p for p in finish(engine) if p.finish_reason is not None}
    for i, tokens in enumerate(said):
        place = next((k for k, token in enumerate(tokens) if token in stop), None)
        assert outputs(choices)[i] == (tokens if place is None else tokens[: place + 1])
        want = FinishReason.LENGTH if place is None else FinishReason.STOP
        assert ends[i].finish_reason is want


def test_choices_of_a_first_token_only(model: Prepared, conversation: Conversation):
    engine = model.engine()
    choices = add(model, engine, conversation, 3, max_tokens=1)
    finish(engine)
    assert [choice.num_output_tokens for choice in choices] == [1, 1, 1]
    assert engine.runner.encoding.num_items == 2


@pytest.mark.parametrize("steps", [0, 1, 3, 6])
def test_an_abort_frees_all(steps: int, model: Prepared, conversation: Conversation):
    engine = model.engine(max_num_batched_tokens=30)
    add(model, engine, conversation, 4)
    for _ in range(steps):
        engine.step()
    engine.abort("c0", "c1", "c2", "c3")
    engine.pool.check()
    assert not engine.has_requests
    assert (engine.pool.num_used, len(engine._held), len(engine._live)) == (0, 0, 0)
    assert engine.totals.aborted == 1


def test_another_choice_leads_when_the_first_ends_early(
    model: Prepared, conversation: Conversation
):
    engine = model.engine()
    choices = add(model, engine, conversation, 3)
    finish(engine)
    said = outputs(choices)
    for early in ("c0", "c1"):
        engine = model.engine(max_num_batched_tokens=30)
        choices = add(model, engine, conversation, 3)
        engine.step()
        engine.abort(early)
        finish(engine)
        left = [i for i in range(3) if f"c{i}" != early]
        assert [outputs(choices)[i] for i in left] == [said[i] for i in left]
        assert engine.runner.encoding.num_items == 2


def test_a_step_that_fails_under_the_first_choice_does_not_strand_the_others(
    model: Prepared, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
):
    engine = model.engine()
    add(model, engine, conversation, 3)
    with monkeypatch.context() as broken:
        broken.setattr(engine.runner, "run", lambda *_: 1 / 0)
        assert [(p.choice, p.failed) for p in engine.step()] == [(0, True)]
    ends = [p.choice for p in finish(engine) if p.finish_reason is not None]
    assert sorted(ends) == [1, 2]
    assert engine.pool.num_used == 0


def test_choices_go_on_when_blocks_run_out(model: Prepared, conversation: Conversation):
    engine = model.engine()
    choices = add(model, engine, conversation, 12, max_tokens=60)
    finish(engine)
    said = outputs(choices)
    small = model.engine(kv_cache_bytes=2**20, block_size=64, max_model_len=256)
    choices = add(model, small, conversation, 12, max_tokens=60)
    finish(small)
    assert small.scheduler.counters.num_preemptions > 0
    assert outputs(choices) == said
