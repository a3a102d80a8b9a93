"""Answers end where they should, and their log probabilities are those of what is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from chiasm_worker.engine.answer import Answer, Piece
from chiasm_worker.engine.sampler import SampledToken, TopLogprobs
from chiasm_worker.equality import Prepared
from chiasm_worker.request import FinishReason, SamplingParams
from chiasm_worker.token_texts import TokenTexts
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def tokenizer(prepared: Callable[[str], Prepared]) -> Any:
    return prepared("qwen3-grouped").model.processor.tokenizer


def token(token_id: int) -> SampledToken:
    return SampledToken(token_id, TopLogprobs(-1.0, (), ()))


def answered(tokenizer: Any, token_ids: Sequence[int], **fields: Any) -> list[Piece]:
    """The pieces until the answer ends."""
    params = SamplingParams(**{"max_tokens": len(token_ids), "num_logprobs": 0, **fields})
    answer = Answer(tokenizer, params, frozenset({tokenizer.eos_token_id}))
    pieces: list[Piece] = []
    for token_id in token_ids:
        pieces.append(answer.push(token(token_id)))
        if pieces[-1].finish_reason is not None:
            break
    return pieces


def text_of(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def shown(pieces: Sequence[Piece]) -> list[int]:
    return [token.token_id for piece in pieces for token in piece.shown]


def test_the_models_end_token_ends_an_answer_and_is_not_shown(tokenizer: Any):
    token_ids = [*tokenizer.encode("ab"), tokenizer.eos_token_id, 97]
    pieces = answered(tokenizer, token_ids)
    assert (text_of(pieces), shown(pieces)) == ("ab", token_ids[:2])
    assert (pieces[-1].finish_reason, pieces[-1].stop_reason) == (FinishReason.STOP, None)


def test_it_can_be_ignored(tokenizer: Any):
    token_ids = [*tokenizer.encode("ab"), tokenizer.eos_token_id, *tokenizer.encode("c")]
    pieces = answered(tokenizer, token_ids, ignore_eos=True)
    assert (text_of(pieces), shown(pieces)) == ("abc", token_ids)
    assert pieces[-1].finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(("include", "text"), [(False, "ab"), (True, "abc")])
def test_a_stop_token_ends_an_answer(tokenizer: Any, include: bool, text: str):
    a, b, c, d = tokenizer.encode("abcd")
    pieces = answered(tokenizer, [a, b, c, d], stop_token_ids=frozenset({c}), include_stop=include)
    assert text_of(pieces) == text
    assert shown(pieces) == [a, b, c][: len(text)]
    assert (pieces[-1].finish_reason, pieces[-1].stop_reason) == (FinishReason.STOP, c)


def test_a_stop_token_ends_an_answer_also_where_the_end_token_is_ignored(tokenizer: Any):
    eos = tokenizer.eos_token_id
    pieces = answered(tokenizer, [97, eos], stop_token_ids=frozenset({eos}), ignore_eos=True)
    assert (pieces[-1].finish_reason, pieces[-1].stop_reason) == (FinishReason.STOP, eos)


def test_what_was_held_back_comes_with_the_end(tokenizer: Any):
    pieces = answered(tokenizer, [*tokenizer.encode("xEN"), tokenizer.eos_token_id], stop=("END",))
    assert [piece.text for piece in pieces] == ["x", "", "", "EN"]
    assert [len(piece.shown) for piece in pieces] == [1, 0, 0, 2]


def test_a_stop_string_is_the_reason_and_its_tokens_are_not_shown(tokenizer: Any):
    token_ids = tokenizer.encode("x END. y")
    pieces = answered(tokenizer, token_ids, stop=("no", "END."))
    assert (pieces[-1].finish_reason, pieces[-1].stop_reason) == (FinishReason.STOP, "END.")
    texts = TokenTexts(tokenizer)
    spelled = b"".join(texts.bytes_of(token_id) for token_id in shown(pieces))
    assert spelled.decode() == text_of(pieces) == "x "


def test_a_stop_string_complete_at_the_last_token_is_a_stop(tokenizer: Any):
    pieces = answered(tokenizer, tokenizer.encode("xEND"), stop=("END",))
    assert pieces[-1].finish_reason is FinishReason.STOP


def test_without_logprobs_nothing_is_shown_or_kept(tokenizer: Any):
    answer = Answer(tokenizer, SamplingParams(max_tokens=9, stop=("END",)), frozenset())
    for token_id in tokenizer.encode("xEN"):
        assert answer.push(SampledToken(token_id, None)).shown == ()
    assert not answer._pending


TEXT = st.text(st.sampled_from("ab é😀\u0301家th"), min_size=1, max_size=20)
STOPS = st.lists(st.text(st.sampled_from("abth😀"), min_size=1, max_size=3), max_size=2)


@given(text=TEXT, stops=STOPS, include=st.booleans())
def test_shown_tokens_spell_the_text_and_come_no_earlier(
    text: str, stops: list[str], include: bool, tokenizer: Any
):
    pieces = answered(tokenizer, tokenizer.encode(text), stop=tuple(stops), include_stop=include)
    texts = TokenTexts(tokenizer)
    spelled = b""
    for i, piece in enumerate(pieces):
        spelled += b"".join(texts.bytes_of(token.token_id) for token in piece.shown)
        if piece.finish_reason is None:
            assert text_of(pieces[: i + 1]).encode().startswith(spelled)
    # A token may reach beyond the cut, or a cut within a character's bytes leave some out.
    assert spelled.startswith(text_of(pieces).encode())
    longest = max(len(texts.bytes_of(token_id)) for token_id in tokenizer.encode(text))
    assert len(spelled) - len(text_of(pieces).encode()) < max(longest, 1)


@given(token_ids=st.lists(st.integers(0, 265), min_size=1, max_size=30))
def test_every_token_of_an_answer_that_its_length_ends_is_shown(
    token_ids: list[int], tokenizer: Any
):
    assert shown(answered(tokenizer, token_ids, ignore_eos=True)) == token_ids
