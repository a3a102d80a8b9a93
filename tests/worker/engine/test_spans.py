"""Requests whose tokens see one another or read pictures by cross-attention, in the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from chiasm_contract.errors import RequestTooLarge
from chiasm_worker.engine.engine import Engine
from chiasm_worker.equality import Conversation, Prepared, Reference, ask
from chiasm_worker.request import SamplingParams

NAMES = ["gemma3-narrow-window", "paligemma2-window", "mllama-llama3-rope"]


def answer(model: Prepared, engine: Engine, talk: Conversation) -> list[int]:
    return model.generate(engine, [talk], 8)[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stale", [float("nan"), float("inf")])
def test_what_blocks_held_before_reaches_no_answer(
    name: str,
    stale: float,
    prepared: Callable[[str], Prepared],
    picture: Callable[..., bytes],
):
    """The fault: padding behind a span or behind a picture's last vector is read."""
    model = prepared(name)
    talks = [ask("hello", [picture(1)]), ask("a longer question", [picture(2), picture(1)])]
    want = model.generate(model.engine(), talks, 12)
    engine = model.engine()
    engine.runner._arena.kv.fill_(stale)
    if engine.runner._arena.cross is not None:
        engine.runner._arena.cross.fill_(stale)
    assert model.generate(engine, talks, 12, steps_between=2) == want


@pytest.mark.parametrize("name", NAMES)
def test_the_same_words_with_other_pictures_share_no_answer(
    name: str, prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    """The fault: a cached prefix of the same tokens is taken for another picture or order."""
    model, engine = prepared(name), prepared(name).engine(block_size=8)
    a, b = picture(1, 60, 60), picture(2, 120, 50)
    shown: Sequence[Sequence[bytes]] = ([a, b], [b, a], [a, a], [b, b], [a], [b])
    want = [answer(model, model.engine(), ask("And now?", pictures)) for pictures in shown]
    assert len({tuple(tokens) for tokens in want}) > 2
    for _ in range(2):
        for pictures, tokens in zip(shown, want, strict=True):
            assert answer(model, engine, ask("And now?", pictures)) == tokens


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_encoded_once_for_all_questions(
    name: str, prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    model, engine = prepared(name), prepared(name).engine()
    for text in ("One?", "Quite another question?", "One?"):
        answer(model, engine, ask(text, [picture(1)]))
    assert engine.runner.encoding.num_items == 1
    assert engine.pool.num_used == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_neighbour_that_leaves_changes_nothing(
    name: str, prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    """The fault: an abort beside a request frees or moves what that request still reads."""
    model = prepared(name)
    talk = ask("What is it?", [picture(1)])
    want = answer(model, model.engine(), talk)
    engine = model.engine(max_num_batched_tokens=24, block_size=8)
    model.add(engine, "neighbour", ask("Same picture?", [picture(1)]), SamplingParams(30))
    kept = model.add(engine, "kept", talk, SamplingParams(8))
    for _ in range(3):
        engine.step()
    engine.abort("neighbour")
    while engine.has_requests:
        engine.step()
    assert list(kept.output_token_ids) == want
    assert engine.pool.num_used == 0


def test_pictures_that_are_read_at_once_must_fit_at_once(
    prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    """The fault: a request whose span can never be computed waits for ever."""
    for name in ("paligemma2-window", "mllama-llama3-rope"):
        model = prepared(name)
        shown = [picture(seed) for seed in range(4)]
        prompt, _ = model.prompt(ask("?", shown))
        record = model.engine().spec.record_bytes
        engine = model.engine(kv_cache_bytes=2**20, max_model_len=2**20 // record * 16)
        room = engine.room(prompt)
        assert engine.make_request("fits", prompt, SamplingParams(room))
        with pytest.raises(RequestTooLarge, match="its 4 media items are read at once"):
            engine.make_request("one more", prompt, SamplingParams(room + 1))


def test_text_alone_passes_the_cross_attention_layers_by(
    prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    """The fault: a request without pictures reads its neighbour's."""
    model = prepared("mllama-llama3-rope")
    talks = [ask("hello"), ask("hello", [picture(1)]), ask("hello", [picture(2)])]
    want = [answer(model, model.engine(), talk) for talk in talks]
    assert len({tuple(tokens) for tokens in want}) == 3
    assert model.generate(model.engine(), talks, 8, steps_between=1) == want


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_logits_are_transformers_own_to_rounding(
    prepared: Callable[[str], Prepared],
    reference: Callable[[str], Reference],
    picture: Callable[..., bytes],
):
    """Greedy tokens hide small faults that the probabilities show."""
    for name in NAMES:
        model, theirs = prepared(name), reference(name)
        talk = ask("What is left of it?", [picture(1, 90, 70)])
        inputs = theirs.inputs(talk)
        with torch.inference_mode():
            logits = theirs._model(**inputs).logits[0, -1]
        engine = model.engine(max_num_batched_tokens=19)
        model.add(engine, "a", talk, SamplingParams(1, num_logprobs=20))
        progress = [p for _ in range(20) if engine.has_requests for p in engine.step()]
        ours = progress[-1].shown[-1].logprobs
        assert ours is not None
        want = logits.log_softmax(-1)
        # fp32 sums over other orders of the same terms; the widest seen is 2e-5.
        torch.testing.assert_close(
            torch.tensor(ours.top_logprobs), want[list(ours.top_ids)], atol=2e-4, rtol=0
        )
