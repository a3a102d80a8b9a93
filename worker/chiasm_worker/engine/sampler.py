"""From logits to tokens.

A row that takes the likeliest token and asks for nothing else shares one argmax over the batch.
Every other row is computed by itself in float64: log probabilities of the model's own logits, then
`filters` in their order, then the likeliest token or a draw. A draw is a function of seed, choice,
position and logits (`noise`), so neighbours in the batch and being preempted change nothing.

Must not know: requests, text.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from chiasm_worker.engine.filters import (
    Row,
    SeenTokens,
    adjust,
    adjusts,
    candidates,
    likeliest,
    penalises,
)
from chiasm_worker.engine.noise import draw, random_bits
from chiasm_worker.request import SamplingParams


@dataclass(frozen=True, slots=True)
class TopLogprobs:
    """The chosen token's log probability and the most likely alternatives', most likely first."""

    logprob: float
    top_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SampledToken:
    """One row's result."""

    token_id: int
    logprobs: TopLogprobs | None


class RowSampler:
    """One sequence's way of choosing tokens.

    Args:
        params: what was asked for.
        token_ids: the sequence, which grows by each chosen token before the next is chosen.
        end_ids: the tokens that would end it, kept away until params.min_tokens.
        choice: which of the answers to one prompt this is.
    """

    def __init__(
        self,
        params: SamplingParams,
        token_ids: Sequence[int],
        end_ids: Collection[int] = (),
        choice: int = 0,
    ) -> None:
        self.params = params
        self._token_ids = token_ids
        self._num_prompt = len(token_ids)
        self._end_ids = np.array(sorted(end_ids), dtype=np.int64)
        self._choice = choice
        # A seed that nobody gave is drawn, so that two requests without one differ.
        self._seed = secrets.randbits(64) if params.seed is None else params.seed
        self._is_greedy = params.temperature == 0.0 or params.top_k == 1
        self._adjusts = adjusts(params)
        self._seen: SeenTokens | None = None
        self.is_plain = self._is_greedy and not self._adjusts and params.num_logprobs is None

    def choose(self, row: Row) -> SampledToken:
        """The sequence's next token, from its logits [vocab_size]."""
        adjusted = self._adjust(row) if self._adjusts else row
        if self._is_greedy:
            token_id = int(adjusted.argmax())
        else:
            ids, scaled = candidates(adjusted, self.params)
            bits = random_bits(self._seed, self._choice, self._position, ids)
            token_id = int(ids[draw(scaled, bits)])
        return SampledToken(token_id, _logprobs(row, token_id, self.params.num_logprobs))

    @property
    def _position(self) -> int:
        """How many tokens of the answer there are."""
        return len(self._token_ids) - self._num_prompt

    def _adjust(self, row: Row) -> Row:
        if self._seen is None and penalises(self.params):
            self._seen = SeenTokens(self._token_ids, self._num_prompt, len(row))
        if self._seen is not None:
            self._seen.update()
        masked = self._end_ids if self._position < self.params.min_tokens else self._end_ids[:0]
        return adjust(row, self.params, masked[masked < len(row)], self._seen)


def sample(logits: torch.Tensor, rows: Sequence[RowSampler]) -> list[SampledToken]:
    """Choose a token for each row of fp32 logits [num_rows, vocab_size]."""
    own = [i for i, row in enumerate(rows) if not row.is_plain]
    if len(own) == len(rows):
        sampled = [SampledToken(-1, None)] * len(rows)
    else:
        sampled = [SampledToken(token_id, None) for token_id in logits.argmax(dim=-1).tolist()]
    if own:
        picked = logits if len(own) == len(rows) else logits[own]
        values: Row = picked.to("cpu", torch.float64).numpy()
        for i, row in zip(own, values, strict=True):
            sampled[i] = rows[i].choose(row)
    return sampled


def _logprobs(row: Row, token_id: int, count: int | None) -> TopLogprobs | None:
    """Log probabilities under the model, before anything that was asked for changes them."""
    if count is None:
        return None
    highest = row.max()
    log_total = highest + np.log(np.exp(row - highest).sum())
    ids = likeliest(row, count) if count else np.array([], dtype=np.int64)
    return TopLogprobs(
        logprob=float(row[token_id] - log_total),
        top_ids=tuple(ids.tolist()),
        top_logprobs=tuple((row[ids] - log_total).tolist()),
    )
