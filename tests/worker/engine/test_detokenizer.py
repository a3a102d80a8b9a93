"""Deltas never split a character, never take anything back, and stop before stop strings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from chiasm_worker.engine.detokenizer import Detokenizer
from chiasm_worker.equality import Prepared
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast


@pytest.fixture(scope="module")
def tokenizer(prepared: Callable[[str], Prepared]) -> Any:
    return prepared("qwen3-grouped").model.processor.tokenizer


def deltas(
    tokenizer: Any, token_ids: Sequence[int], stops: Sequence[str] = (), **options: Any
) -> list[str]:
    detokenizer = Detokenizer(tokenizer, stops, **options)
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


def test_a_stop_string_may_stay_in_the_answer(tokenizer: Any):
    token_ids = tokenizer.encode("x END. y")
    assert "".join(deltas(tokenizer, token_ids, ["END."], include_stop=True)) == "x END."


def test_a_stop_string_within_the_first_tokens_does_not_count(tokenizer: Any):
    token_ids = tokenizer.encode("aENDbENDc")
    assert len(token_ids) == 9, "a token for each letter"
    for min_tokens, seen in [(0, "a"), (3, "a"), (4, "aENDb"), (7, "aENDb"), (8, "aENDbENDc")]:
        parts = deltas(tokenizer, token_ids, ["END"], min_tokens=min_tokens)
        assert "".join(parts) == seen


def test_a_stop_string_may_end_within_a_character_of_several_tokens(tokenizer: Any):
    assert deltas(tokenizer, tokenizer.encode("a😀b"), ["😀"]) == ["a", "", "", "", "", ""]
    assert deltas(tokenizer, tokenizer.encode("a😀é"), ["😀é"]) == ["a"] + [""] * 7


TEXT = st.text(st.sampled_from("ab é😀\u0301家th"), max_size=20)


@given(text=TEXT, stops=st.lists(st.text(st.sampled_from("abth😀"), min_size=1, max_size=3)))
def test_all_deltas_are_the_text_before_the_first_stop(text: str, stops: list[str], tokenizer: Any):
    # Of two stop strings one of which holds the other, whichever is complete first counts.
    assume(not any(a != b and a in b for a in stops for b in stops))
    places = [text.find(stop) for stop in stops if stop in text]
    seen = "".join(deltas(tokenizer, tokenizer.encode(text), stops))
    assert seen == (text[: min(places)] if places else text)


STOPS = st.lists(st.text(st.sampled_from("abth😀"), min_size=1, max_size=4), max_size=3)


@given(text=TEXT, stops=STOPS, include=st.booleans())
def test_no_stop_string_is_ever_sent_in_part(
    text: str, stops: list[str], include: bool, tokenizer: Any
):
    """Whatever was sent at any moment is a prefix of the answer, and stops nowhere inside."""
    parts = deltas(tokenizer, tokenizer.encode(text), stops, include_stop=include)
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    end, start = min(ends, default=(len(text), len(text)))
    assert "".join(parts) == text[: end if include else start]


@given(token_ids=st.lists(st.integers(0, 265), max_size=30))
def test_any_tokens_decode_as_transformers_decodes_them(token_ids: list[int], tokenizer: Any):
    whole = tokenizer.decode(token_ids, skip_special_tokens=True)
    parts = deltas(tokenizer, token_ids)
    assert "".join(parts) == whole


@pytest.fixture(scope="module")
def byte_fallback() -> Any:
    """A tokenizer like llama's: words with a mark for their space, and a token for each byte."""
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
    vocab |= {"▁the": 256, "tin": 257, "▁": 258, "<unk>": 259}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(content=" ", left=1)]
    )  # fmt: skip
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def test_bytes_that_the_stream_cannot_place_do_not_end_the_answer(byte_fallback: Any):
    # "tin", then bytes that are no character, then "tin": DecodeStream raises at the last one.
    token_ids = [257, 0xC2, 0x92, 0x92, 0x92, 257, 256]
    parts = deltas(byte_fallback, token_ids)
    assert parts[0] == "tin"
    assert "".join(parts).endswith("tin the")


WORDS = {256: "the", 257: "tin"}


@given(token_ids=st.lists(st.sampled_from([0x3A, 0x92, 0xC2, 0xDD, *WORDS, 258]), max_size=20))
def test_words_survive_any_bytes_between_them(token_ids: list[int], byte_fallback: Any):
    """The faults: an answer that bytes end, or words that go down with the bytes beside them."""
    text = "".join(deltas(byte_fallback, token_ids, ["never"]))
    text.encode()
    assert re.findall("the|tin", text) == [WORDS[i] for i in token_ids if i in WORDS]
    whole = byte_fallback.decode(token_ids, skip_special_tokens=True)
    if "\ufffd" not in whole:
        assert text == whole


CHARACTERS = st.sampled_from(["the ", "tin", ":", "é", "家", "😀", " "])


@given(parts=st.lists(CHARACTERS, max_size=12))
def test_bytes_that_are_characters_are_the_decoded_answer(parts: list[str], byte_fallback: Any):
    token_ids = [i for part in parts for i in ([257] if part == "tin" else part.encode())]
    text = "".join(deltas(byte_fallback, token_ids))
    assert text == byte_fallback.decode(token_ids, skip_special_tokens=True)
