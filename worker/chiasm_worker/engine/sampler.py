"""From logits to tokens.

Each request that samples owns a random generator, advanced once per token: what a request draws
depends on its seed and its logits, never on its neighbours in the batch or on being preempted.
Order of the filters as in transformers: temperature, top_k, top_p.

Must not know: requests, text.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import torch

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
    """One request's way of choosing tokens."""

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        self._generator = torch.Generator()
        # A seed that nobody gave is drawn, so that two requests without one differ.
        seed = secrets.randbits(63) if params.seed is None else params.seed
        self._generator.manual_seed(seed)

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always chosen."""
        return self.params.temperature == 0.0 or self.params.top_k == 1

    def choose(self, logits: torch.Tensor) -> int:
        """Draw a token from fp32 logits [vocab_size] on the CPU."""
        scaled = logits.double() / self.params.temperature
        count = self.params.top_k or logits.numel()
        values, ids = torch.topk(scaled, min(count, logits.numel()))
        cumulative = values.softmax(-1).cumsum(-1)
        kept = 1 + int(torch.count_nonzero(cumulative[:-1] < self.params.top_p))
        mark = torch.rand((), generator=self._generator, dtype=torch.float64) * cumulative[kept - 1]
        index = int(torch.searchsorted(cumulative[:kept], mark, right=True))
        return int(ids[min(index, kept - 1)])


def sample(logits: torch.Tensor, rows: Sequence[RowSampler]) -> list[SampledToken]:
    """Choose a token for each row of fp32 logits [num_rows, vocab_size]."""
    token_ids: list[int] = logits.argmax(dim=-1).tolist()
    for i, row in enumerate(rows):
        if not row.is_greedy:
            token_ids[i] = row.choose(logits[i].cpu())
    return [
        SampledToken(token_id, _logprobs(logits[i], token_id, rows[i].params.num_logprobs))
        for i, token_id in enumerate(token_ids)
    ]


def _logprobs(logits: torch.Tensor, token_id: int, count: int | None) -> TopLogprobs | None:
    """Log probabilities under the model, before temperature and filters."""
    if count is None:
        return None
    logprobs = logits.log_softmax(-1)
    values, ids = torch.topk(logprobs, min(count, logprobs.numel()))
    return TopLogprobs(
        logprob=float(logprobs[token_id]),
        top_ids=tuple(ids.tolist()),
        top_logprobs=tuple(values.tolist()),
    )
