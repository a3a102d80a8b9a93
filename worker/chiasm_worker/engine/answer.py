"""One choice's answer as it grows: which text and log probabilities are certain, and when it ends.

An end token (the model's own or one of stop_token_ids) is no part of the text, unless the request
wants what ended it. Log probabilities come with the text: a token's are held back as long as its
characters are. All of them together belong to the tokens that are shown: not to the token that
ended the answer, nor to those behind the place where a stop string cut it.

Must not know: the scheduler, how tokens are chosen, HTTP.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from chiasm_worker.engine.detokenizer import Detokenizer
from chiasm_worker.engine.sampler import SampledToken
from chiasm_worker.request import FinishReason, SamplingParams


@dataclass(frozen=True, slots=True)
class Piece:
    """What one token brought: text and log probabilities that are certain, perhaps the end."""

    text: str
    shown: tuple[SampledToken, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None


@dataclass(slots=True)
class _Pending:
    token: SampledToken
    start: int  # characters before it
    end: int | None = None  # None while its last character is incomplete


def end_token_ids(params: SamplingParams, eos_token_ids: AbstractSet[int]) -> frozenset[int]:
    """The tokens that end an answer."""
    return params.stop_token_ids | (frozenset() if params.ignore_eos else eos_token_ids)


class Answer:
    """The text of one choice.

    Args:
        tokenizer: a transformers fast tokenizer.
        params: the request's.
        eos_token_ids: the model's own end tokens.
    """

    def __init__(
        self, tokenizer: Any, params: SamplingParams, eos_token_ids: AbstractSet[int]
    ) -> None:
        self._params = params
        self._eos_token_ids = eos_token_ids
        self._end_ids = end_token_ids(params, eos_token_ids)
        self._detokenizer = Detokenizer(
            tokenizer,
            params.stop,
            include_stop=params.include_stop,
            min_tokens=params.min_tokens,
        )
        self._num_tokens = 0
        self._pending: list[_Pending] = []

    def push(self, token: SampledToken) -> Piece:
        """Add a chosen token."""
        self._num_tokens += 1
        if token.token_id in self._end_ids:
            return self._end_by(token)
        text = self._add(token)
        if not self._detokenizer.is_stopped and self._num_tokens < self._params.max_tokens:
            return Piece(text, self._released() if self._pending else ())
        text += self._detokenizer.finish()
        if self._detokenizer.is_stopped:
            stop = self._detokenizer.stopped_by
            return Piece(text, self._rest(), FinishReason.STOP, stop)
        return Piece(text, self._rest(), FinishReason.LENGTH)

    def _end_by(self, token: SampledToken) -> Piece:
        is_own = token.token_id in self._eos_token_ids and not self._params.ignore_eos
        text = self._add(token) if self._params.include_stop else ""
        text += self._detokenizer.finish()
        stop_reason = None if is_own else token.token_id
        return Piece(text, self._rest(), FinishReason.STOP, stop_reason)

    def _add(self, token: SampledToken) -> str:
        start = self._detokenizer.num_decoded
        text = self._detokenizer.push(token.token_id)
        if token.logprobs is not None:
            self._pending.append(_Pending(token, start))
            if self._detokenizer.num_decoded > start:
                for pending in self._pending:
                    if pending.end is None:
                        pending.end = self._detokenizer.num_decoded
        return text

    def _released(self) -> tuple[SampledToken, ...]:
        """The tokens whose characters are all certain."""
        count = 0
        for pending in self._pending:
            if pending.end is None or pending.end > self._detokenizer.num_sent:
                break
            count += 1
        released = tuple(pending.token for pending in self._pending[:count])
        del self._pending[:count]
        return released

    def _rest(self) -> tuple[SampledToken, ...]:
        """The tokens still held back that are shown, now that nothing follows."""
        cut = self._detokenizer.num_sent if self._detokenizer.is_stopped else None
        return tuple(p.token for p in self._pending if cut is None or p.start < cut)
