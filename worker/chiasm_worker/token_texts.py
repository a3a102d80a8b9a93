"""What single tokens spell, for log probabilities.

Must not know: which tokens are shown.
"""

from __future__ import annotations

from typing import Any

from chiasm_contract.messages import ChosenLogprob, TokenLogprob

from chiasm_worker.engine.sampler import TopLogprobs


class TokenTexts:
    """One tokenizer's tokens as log probabilities name them."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def chosen(self, token_id: int, logprobs: TopLogprobs) -> ChosenLogprob:
        """The chosen token beside its alternatives."""
        top = tuple(
            self._token(top_id, value)
            for top_id, value in zip(logprobs.top_ids, logprobs.top_logprobs, strict=True)
        )
        token = self._token(token_id, logprobs.logprob)
        return ChosenLogprob(**token.model_dump(), top=top)

    def _token(self, token_id: int, logprob: float) -> TokenLogprob:
        data = token_bytes(self._tokenizer, token_id)
        return TokenLogprob(
            token=data.decode(errors="replace"), token_bytes=tuple(data), logprob=logprob
        )


def token_bytes(tokenizer: Any, token_id: int) -> bytes:
    """The bytes that a token adds to the answer's text, half characters included."""
    word: str | None = tokenizer.convert_ids_to_tokens(token_id)
    if word is None:  # Models may have more rows than their tokenizer has tokens.
        return b""
    if token_id in tokenizer.added_tokens_decoder:
        return word.encode()
    if len(word) == 6 and word.startswith("<0x") and word.endswith(">"):
        return bytes.fromhex(word[3:5])
    if tokenizer.backend_tokenizer.decode([token_id]).find("\ufffd") >= 0:
        # A byte-level token that holds a part of a character.
        return bytes(_BYTE_LEVEL[symbol] for symbol in word if symbol in _BYTE_LEVEL)
    text: str = tokenizer.backend_tokenizer.decode([token_id])
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
