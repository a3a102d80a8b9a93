"""What single tokens spell, for log probabilities.

Must not know: which tokens are shown.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from chiasm_contract.messages import ChosenLogprob, TokenLogprob

from chiasm_worker.engine.sampler import TopLogprobs

_MAX_KEPT = 2**16


class TokenTexts:
    """One tokenizer's tokens as log probabilities name them, each looked up once."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        # The tokenizer builds this anew whenever it is asked: milliseconds for some vocabularies.
        self._added_ids = frozenset(tokenizer.added_tokens_decoder)
        self._spelled = lru_cache(_MAX_KEPT)(self._spell)

    def chosen(self, token_id: int, logprobs: TopLogprobs) -> ChosenLogprob:
        """The chosen token beside its alternatives."""
        top = tuple(
            self._token(top_id, value)
            for top_id, value in zip(logprobs.top_ids, logprobs.top_logprobs, strict=True)
        )
        token = self._token(token_id, logprobs.logprob)
        return ChosenLogprob(**token.model_dump(), top=top)

    def bytes_of(self, token_id: int) -> bytes:
        """The bytes that a token adds to the answer's text, half characters included."""
        return self._spelled(token_id)

    def _token(self, token_id: int, logprob: float) -> TokenLogprob:
        data = self.bytes_of(token_id)
        return TokenLogprob(
            token=data.decode(errors="replace"), token_bytes=tuple(data), logprob=logprob
        )

    def _spell(self, token_id: int) -> bytes:
        word: str | None = self._tokenizer.convert_ids_to_tokens(token_id)
        if word is None:  # Models may have more rows than their tokenizer has tokens.
            return b""
        if token_id in self._added_ids:
            return word.encode()
        if len(word) == 6 and word.startswith("<0x") and word.endswith(">"):
            return bytes.fromhex(word[3:5])
        text: str = self._backend.decode([token_id])
        if "\ufffd" in text:  # A byte-level token that holds a part of a character.
            return bytes(_BYTE_LEVEL[symbol] for symbol in word if symbol in _BYTE_LEVEL)
        # Metaspace decoders drop the space in front of a first word.
        return (" " + text if word.startswith("▁") and not text.startswith(" ") else text).encode()


def _byte_level() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    table.update({chr(256 + i): byte for i, byte in enumerate(others)})
    return table


_BYTE_LEVEL = _byte_level()
