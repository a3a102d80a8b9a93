"""What single tokens spell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from chiasm_worker.engine.sampler import TopLogprobs
from chiasm_worker.equality import Prepared
from chiasm_worker.token_texts import TokenTexts, token_bytes
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast


@pytest.mark.parametrize("text", ["the inner ü 😀家 tin", "\n\t a", "\x00\x7f€"])
def test_byte_level_tokens_spell_the_text(text: str, prepared: Callable[[str], Prepared]):
    tokenizer: Any = prepared("qwen3-grouped").model.processor.tokenizer
    pieces = [token_bytes(tokenizer, token_id) for token_id in tokenizer.encode(text)]
    assert b"".join(pieces).decode() == text


def test_added_tokens_spell_their_name(prepared: Callable[[str], Prepared]):
    tokenizer: Any = prepared("qwen3-grouped").model.processor.tokenizer
    assert token_bytes(tokenizer, tokenizer.eos_token_id) == b"<|im_end|>"


def test_a_row_of_the_model_that_is_no_token_spells_nothing(prepared: Callable[[str], Prepared]):
    tokenizer: Any = prepared("qwen3-grouped").model.processor.tokenizer
    assert token_bytes(tokenizer, len(tokenizer)) == b""
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
    assert [token_bytes(tokenizer, i) for i in range(2)] == [b" the", b"tin"]
    assert b"".join(token_bytes(tokenizer, i) for i in (2, 3, 4)).decode() == "€"
