"""What single tokens spell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from chiasm_worker.engine.sampler import TopLogprobs
from chiasm_worker.equality import Prepared
from chiasm_worker.token_texts import TokenTexts
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast


def spelled(tokenizer: Any, token_ids: Sequence[int]) -> bytes:
    """What the tokens spell as log probabilities name them."""
    texts = TokenTexts(tokenizer)
    return b"".join(texts.bytes_of(token_id) for token_id in token_ids)


@pytest.mark.parametrize("text", ["the inner ü 😀家 tin", "\n\t a", "\x00\x7f€"])
def test_byte_level_tokens_spell_the_text(text: str, prepared: Callable[[str], Prepared]):
    tokenizer: Any = prepared("qwen3-grouped").model.processor.tokenizer
    assert spelled(tokenizer, tokenizer.encode(text)).decode() == text


def test_added_tokens_spell_their_name(prepared: Callable[[str], Prepared]):
    tokenizer: Any = prepared("qwen3-grouped").model.processor.tokenizer
    assert spelled(tokenizer, [tokenizer.eos_token_id]) == b"<|im_end|>"


def test_a_row_of_the_model_that_is_no_token_spells_nothing(prepared: Callable[[str], Prepared]):
    tokenizer: Any = prepared("qwen3-grouped").model.processor.tokenizer
    assert spelled(tokenizer, [len(tokenizer)]) == b""
    texts = TokenTexts(tokenizer).chosen(len(tokenizer), TopLogprobs(-1.0, (0,), (-1.0,)))
    assert (texts.token, texts.token_bytes) == ("", ())


def test_sentencepiece_tokens_keep_their_space_and_bytes():
    vocab = {"▁the": 0, "tin": 1, "<0xE2>": 2, "<0x82>": 3, "<0xAC>": 4, "<unk>": 5}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(content=" ", left=1)]
    )  # fmt: skip
    backend.add_special_tokens([AddedToken("</s>", special=True)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert [spelled(tokenizer, [i]) for i in range(2)] == [b" the", b"tin"]
    assert spelled(tokenizer, [2, 3, 4]).decode() == "€"


class Counting:
    """A tokenizer that counts what it is asked."""

    def __init__(self, tokenizer: Any, counts: Counter[str]) -> None:
        self._tokenizer = tokenizer
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        self._counts[name] += 1
        value = getattr(self._tokenizer, name)
        return Counting(value, self._counts) if name == "backend_tokenizer" else value


def test_a_tokenizer_is_asked_once_for_each_token(prepared: Callable[[str], Prepared]):
    """The fault: what the tokenizer builds from its whole vocabulary, for every token shown.

    Gemma's takes 12 ms to list its added tokens, on the event loop that serves everybody.
    """
    counts: Counter[str] = Counter()
    texts = TokenTexts(Counting(prepared("qwen3-grouped").model.processor.tokenizer, counts))
    for _ in range(50):
        texts.chosen(70, TopLogprobs(-1.0, (71, 265), (-2.0, -3.0)))
    assert counts["added_tokens_decoder"] == 1
    assert max(counts.values()) <= 3
