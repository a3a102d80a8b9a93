"""Requests end for the right reason, say what they used, and leave nothing behind."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from chiasm_contract.errors import InvalidRequest, RequestTooLarge
from chiasm_worker.engine.answer import Piece
from chiasm_worker.engine.engine import Engine
from chiasm_worker.engine.progress import Progress
from chiasm_worker.engine.sampler import SampledToken
from chiasm_worker.equality import Conversation, Prepared, ask
from chiasm_worker.models.base import EncodedBatch
from chiasm_worker.request import FinishReason, SamplingParams


@pytest.fixture
def model(prepared: Callable[[str], Prepared]) -> Prepared:
    return prepared("qwen3-grouped")


def run(
    model: Prepared, engine: Engine, conversation: Conversation, **params: Any
) -> list[Progress]:
    model.add(engine, "a", conversation, SamplingParams(**{"max_tokens": 12, **params}))
    progress: list[Progress] = []
    while engine.has_requests:
        progress += engine.step()
    return progress


def test_length_ends_a_request_and_usage_counts_it(model: Prepared, picture: Callable[..., bytes]):
    progress = run(model, model.engine(), ask("hello", [picture(1)]))
    assert [p.finish_reason for p in progress] == [None] * 11 + [FinishReason.LENGTH]
    usage = progress[-1].usage
    assert usage is not None
    prompt, _ = model.prompt(ask("hello", [picture(1)]))
    assert usage.num_prompt_tokens == len(prompt.token_ids)
    assert (usage.num_output_tokens, usage.num_cached_tokens) == (12, 0)
    assert usage.num_media_tokens == {"image": prompt.spans[0].item.num_tokens}


def test_cached_tokens_are_reported(model: Prepared, picture: Callable[..., bytes]):
    engine = model.engine()
    run(model, engine, ask("hello", [picture(1)]))
    usage = run(model, engine, ask("hello", [picture(1)]))[-1].usage
    assert usage is not None
    assert usage.num_cached_tokens == (usage.num_prompt_tokens - 1) // 16 * 16 > 0


def test_a_stop_string_ends_a_request_and_is_not_sent(model: Prepared):
    whole = "".join(p.text for p in run(model, model.engine(), ask("hello")))
    stop = whole[3:5]
    progress = run(model, model.engine(), ask("hello"), stop=(stop,))
    assert "".join(p.text for p in progress) == whole[: whole.index(stop)]
    assert progress[-1].finish_reason is FinishReason.STOP


def test_an_end_token_ends_a_request(model: Prepared):
    engine = model.engine()
    first = run(model, engine, ask("hello"))
    third = first[2].token_id
    place = next(i for i, p in enumerate(first) if p.token_id == third)
    before = engine.model.eos_token_ids
    object.__setattr__(engine.model, "eos_token_ids", frozenset({third}))
    try:
        progress = run(model, engine, ask("hello"))
    finally:
        object.__setattr__(engine.model, "eos_token_ids", before)
    assert len(progress) == place + 1
    assert progress[-1].finish_reason is FinishReason.STOP


SEEDED: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 1.4, "top_p": 0.9, "top_k": 40, "min_p": 0.01},
    {"temperature": 0.8, "presence_penalty": 1.0, "frequency_penalty": 0.5,
     "repetition_penalty": 1.3, "logit_bias": {70: 3.0}, "min_tokens": 20},
    {"temperature": 0.0, "frequency_penalty": 2.0},
]  # fmt: skip


@pytest.mark.parametrize("fields", SEEDED, ids=str)
def test_a_seed_repeats_an_answer_in_any_company(
    fields: dict[str, Any], model: Prepared, picture: Callable[..., bytes]
):
    params = {"seed": 3, "max_tokens": 60, "ignore_eos": True, **fields}
    talk = ask("hello, what is this?", [picture(1)])
    alone = [p.token_id for p in run(model, model.engine(), talk, **params)]

    def crowded(engine: Engine, count: int) -> list[int | None]:
        for i in range(count):
            other = SamplingParams(60, temperature=1.0, ignore_eos=True)
            model.add(engine, f"x{i}", ask(f"other {i}", [picture(i)]), other)
        return [p.token_id for p in run(model, engine, talk, **params) if p.request_id == "a"]

    chunked = model.engine(max_num_batched_tokens=9)
    assert crowded(chunked, 3) == alone
    assert crowded(chunked, 1) == alone, "from the cache"
    small = model.engine(kv_cache_bytes=2**20, block_size=64, max_model_len=256)
    assert crowded(small, 12) == alone
    assert small.scheduler.counters.num_preemptions > 0
    other_seed = [p.token_id for p in run(model, model.engine(), talk, **params | {"seed": 4})]
    assert (other_seed == alone) is (fields["temperature"] == 0)


def test_nothing_of_the_prompt_ends_an_answer(model: Prepared):
    prompt, _ = model.prompt(ask("END"))
    last = prompt.token_ids[-1]
    want = [p.token_id for p in run(model, model.engine(), ask("END"))]
    progress = run(
        model, model.engine(), ask("END"), stop=("END",),
        stop_token_ids=frozenset(prompt.token_ids) - set(want),
    )  # fmt: skip
    assert last not in want
    assert [p.token_id for p in progress] == want
    assert progress[-1].finish_reason is FinishReason.LENGTH


def test_a_stop_token_says_so(model: Prepared):
    whole = run(model, model.engine(), ask("hello"))
    stop = whole[3].token_id
    assert stop is not None
    progress = run(model, model.engine(), ask("hello"), stop_token_ids=frozenset({stop}))
    place = [p.token_id for p in whole].index(stop)
    assert (len(progress), progress[-1].stop_reason) == (place + 1, stop)
    before = [p.token_id for p in whole[:place]]
    text = model.model.processor.tokenizer.decode(before, skip_special_tokens=True)
    assert "".join(p.text for p in progress) == text


def test_logprobs_are_those_of_the_greedy_choice(model: Prepared):
    progress = run(model, model.engine(), ask("hello"), num_logprobs=3)
    shown = [token for each in progress for token in each.shown]
    assert [token.token_id for token in shown] == [each.token_id for each in progress]
    assert len(shown) == 12
    for token in shown:
        assert token.logprobs is not None
        assert token.logprobs.top_ids[0] == token.token_id
        assert token.logprobs.logprob == token.logprobs.top_logprobs[0] <= 0


def test_too_long_is_the_clients_fault(model: Prepared):
    engine = model.engine(max_model_len=64)
    prompt, _ = model.prompt(ask("hello"))
    with pytest.raises(InvalidRequest, match="together at most 64 are allowed") as error:
        engine.make_request("a", prompt, SamplingParams(max_tokens=60))
    assert (error.value.code, error.value.param) == ("context_length_exceeded", "max_tokens")
    prompt, _ = model.prompt(ask("hello " * 64))
    with pytest.raises(InvalidRequest, match="together at most 64 are allowed") as error:
        engine.make_request("b", prompt, SamplingParams(max_tokens=1))
    assert error.value.param == "messages"


def test_more_blocks_than_there_are_is_the_clients_fault(
    model: Prepared, picture: Callable[..., bytes]
):
    record = model.engine().spec.record_bytes
    tokens = 2**20 // record * 16
    engine = model.engine(kv_cache_bytes=2**20, max_model_len=tokens)
    prompt, _ = model.prompt(ask("hello", [picture(1, 200, 200)]))
    with pytest.raises(RequestTooLarge, match="needs more cache blocks than the"):
        engine.make_request("a", prompt, SamplingParams(tokens - len(prompt.token_ids)))


def test_room_is_what_a_request_may_still_say(model: Prepared, picture: Callable[..., bytes]):
    record = model.engine().spec.record_bytes
    tokens = 2**20 // record * 16
    engine = model.engine(kv_cache_bytes=2**20, max_model_len=tokens)
    for pictures in ([], [picture(1, 200, 200)], [picture(1, 200, 200), picture(2, 64, 64)]):
        prompt, _ = model.prompt(ask("hello", pictures))
        room = engine.room(prompt)
        assert engine.make_request("a", prompt, SamplingParams(room))
        with pytest.raises((InvalidRequest, RequestTooLarge)):
            engine.make_request("a", prompt, SamplingParams(room + 1))
    long, _ = model.prompt(ask("x" * 2 * tokens))
    assert engine.room(long) < 0


def test_a_budget_below_the_promised_length_is_refused(model: Prepared):
    with pytest.raises(ValueError, match="less than max_model_len 100000"):
        model.engine(max_model_len=100_000)


def test_a_batch_that_fails_fails_its_requests_and_nothing_else(
    model: Prepared, picture: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
):
    engine = model.engine()
    encoder = engine.model.encoder

    def broken(batch: Sequence[Mapping[str, torch.Tensor]]) -> EncodedBatch:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(encoder, "encode_batch", broken)
    progress = run(model, engine, ask("hello", [picture(1)]))
    assert [p.failed for p in progress] == [True]
    assert (engine.pool.num_used, engine.pool.num_cached, engine.totals.failed) == (0, 0, 1)
    monkeypatch.undo()
    assert run(model, engine, ask("hello", [picture(1)]))[-1].finish_reason is FinishReason.LENGTH
    assert engine.runner.encoding.num_items == 1


@pytest.mark.parametrize("beside", [(64, 48), (120, 60)], ids=["same shape", "other shape"])
def test_a_picture_that_breaks_the_encoder_ends_its_own_request(
    beside: tuple[int, int],
    model: Prepared,
    picture: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
):
    """The fault: one such picture ends every answer that runs beside it."""
    good = {
        "words": ask("hello"),
        "earlier": ask("and this?", [picture(1)]),
        "together": ask("and that?", [picture(2, *beside)]),
    }
    want = {name: model.generate(model.engine(), [each], 12)[0] for name, each in good.items()}
    _, (poison,) = model.prompt(ask("x", [picture(3)]))
    pixels = poison.tensors()["pixel_values"]
    engine = model.engine()
    encode_batch = engine.model.encoder.encode_batch

    def fragile(batch: Sequence[Mapping[str, torch.Tensor]]) -> EncodedBatch:
        for inputs in batch:
            if torch.equal(inputs["pixel_values"], pixels):
                raise RuntimeError("no such patch")
        return encode_batch(batch)

    monkeypatch.setattr(engine.model.encoder, "encode_batch", fragile)
    params = SamplingParams(12)
    requests = {name: model.add(engine, name, good[name], params) for name in ("words", "earlier")}
    engine.step()
    for name in ("bad", "bad too"):
        model.add(engine, name, ask(f"what is {name}?", [picture(3)]), params)
    requests["together"] = model.add(engine, "together", good["together"], params)
    progress: list[Progress] = []
    while engine.has_requests:
        progress += engine.step()
        engine.scheduler.check()
    assert {p.request_id for p in progress if p.failed} == {"bad", "bad too"}
    assert {name: list(each.output_token_ids) for name, each in requests.items()} == want
    assert (engine.totals.failed, engine.pool.num_used) == (2, 0)


def test_a_decoder_that_fails_ends_new_pictures_before_all(
    model: Prepared, picture: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
):
    """And the step after it, without any, all that it computes: failing comes to an end."""
    engine = model.engine()
    monkeypatch.setattr(engine.model.decoder, "forward", lambda *_: 1 / 0)
    for name, pictures in (("a", []), ("b", [picture(1)]), ("c", []), ("d", [picture(2)])):
        model.add(engine, name, ask("hello", pictures), SamplingParams(12))
    failed = [[p.request_id for p in engine.step() if p.failed] for _ in range(2)]
    assert failed == [["b", "d"], ["a", "c"]]
    assert not engine.has_requests
    assert (engine.pool.num_used, engine.pool.num_cached) == (0, 0)


def test_an_answer_that_cannot_be_written_ends_alone(
    model: Prepared, monkeypatch: pytest.MonkeyPatch
):
    alone = [p.token_id for p in run(model, model.engine(), ask("hello"))]
    engine = model.engine()
    model.add(engine, "bad", ask("other"), SamplingParams(12))

    def broken(token: SampledToken) -> Piece:
        raise RuntimeError("no such character")

    monkeypatch.setattr(engine._live["bad"].answer, "push", broken)
    progress = run(model, engine, ask("hello"))
    assert [p.failed for p in progress if p.request_id == "bad"] == [True]
    assert [p.token_id for p in progress if p.request_id == "a"] == alone
    engine.pool.check()
    assert (engine.pool.num_used, engine.totals.failed, len(engine._live)) == (0, 1, 0)


@pytest.mark.parametrize("stale", [float("nan"), float("inf")])
def test_what_blocks_held_before_reaches_no_answer(
    stale: float, model: Prepared, picture: Callable[..., bytes]
):
    talks = [ask("hello", [picture(1)]), ask("a longer question"), ask("x")]
    want = model.generate(model.engine(), talks, 20)
    engine = model.engine()
    engine.runner._arena.kv.fill_(stale)
    assert model.generate(engine, talks, 20, steps_between=2) == want


@pytest.mark.parametrize("seed", range(3))
def test_after_random_aborts_no_block_is_held(
    seed: int, model: Prepared, picture: Callable[..., bytes]
):
    rng = random.Random(seed)
    engine = model.engine(max_num_batched_tokens=20, max_num_seqs=3)
    pictures = [picture(i, 40 + 30 * i, 60) for i in range(4)]
    alive: list[str] = []
    for number in range(60):
        shown: Sequence[bytes] = rng.sample(pictures, rng.randrange(3))
        model.add(engine, f"r{number}", ask("x" * rng.randrange(30), shown), SamplingParams(6))
        alive.append(f"r{number}")
        for _ in range(rng.randrange(4)):
            if engine.has_requests:
                engine.step()
        if rng.random() < 0.6:
            engine.abort(rng.choice(alive))
        engine.pool.check()
    for request_id in alive:
        engine.abort(request_id)
    engine.pool.check()
    assert not engine.has_requests
    assert engine.pool.num_used == 0
    assert engine.pool.num_free + engine.pool.num_cached == engine.pool.num_blocks
    assert not engine._live
    assert engine.runner.encoding.num_items == len(pictures)
