"""Deltas never split a character, never take anything back, and stop before stop strings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from chiasm_worker.engine.detokenizer import Detokenizer
from chiasm_worker.equality import Prepared
from hypothesis import assume, given
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def tokenizer(prepared: Callable[[str], Prepared]) -> Any:
    return prepared("qwen3-grouped").model.processor.tokenizer


def deltas(tokenizer: Any, token_ids: Sequence[int], stops: Sequence[str] = ()) -> list[str]:
    detokenizer = Detokenizer(tokenizer, stops)
    parts = []
    for token_id in token_ids:
        parts.append(detokenizer.push(token_id))
        if detokenizer.is_stopped:
            break
    return [*parts, detokenizer.finish()]


def test_a_character_of_four_tokens_comes_out_whole(tokenizer: Any):
    token_ids = tokenizer.encode("a😀b")
    assert len(token_ids) == 6
    assert deltas(tokenizer, token_ids) == ["a", "", "", "", "😀", "b", ""]


def test_half_a_character_at_the_end_is_shown_as_unknown(tokenizer: Any):
    assert deltas(tokenizer, tokenizer.encode("a😀")[:3]) == ["a", "", "", "\ufffd"]


def test_special_tokens_are_silent(tokenizer: Any):
    token_ids = [*tokenizer.encode("ab"), tokenizer.eos_token_id]
    assert "".join(deltas(tokenizer, token_ids)) == "ab"


def test_what_may_become_a_stop_string_is_held_back(tokenizer: Any):
    token_ids = tokenizer.encode("x END y", add_special_tokens=False)
    parts = deltas(tokenizer, token_ids, ["END."])
    assert "".join(parts) == "x END y"
    assert not any(part.endswith(("E", "EN", "END")) for part in parts)
    assert "".join(deltas(tokenizer, tokenizer.encode("x END. y"), ["END."])) == "x "


def test_a_held_back_beginning_is_sent_at_the_end(tokenizer: Any):
    assert deltas(tokenizer, tokenizer.encode("xEN"), ["END"])[-1] == "EN"


TEXT = st.text(st.sampled_from("ab é😀\u0301家th"), max_size=20)


@given(text=TEXT, stops=st.lists(st.text(st.sampled_from("abth😀"), min_size=1, max_size=3)))
def test_all_deltas_are_the_text_before_the_first_stop(text: str, stops: list[str], tokenizer: Any):
    # Of two stop strings one of which holds the other, whichever is complete first counts.
    assume(not any(a != b and a in b for a in stops for b in stops))
    places = [text.find(stop) for stop in stops if stop in text]
    seen = "".join(deltas(tokenizer, tokenizer.encode(text), stops))
    assert seen == (text[: min(places)] if places else text)


@given(token_ids=st.lists(st.integers(0, 265), max_size=30))
def test_any_tokens_decode_as_transformers_decodes_them(token_ids: list[int], tokenizer: Any):
    whole = tokenizer.decode(token_ids, skip_special_tokens=True)
    parts = deltas(tokenizer, token_ids)
    assert "".join(parts) == whole
