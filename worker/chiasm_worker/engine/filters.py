"""What a request's parameters do to one row of logits, in vLLM's order.

1. `adjust`, which also changes greedy answers: end tokens masked until min_tokens, logit_bias,
   repetition_penalty (prompt and output), frequency_penalty, presence_penalty (output only).
2. `candidates`, which leaves the likeliest token in place: temperature, min_p, top_k, top_p. Each
   filter sees the distribution that the ones before it left, renormalised.

Each step does what transformers' LogitsProcessor of that name does. transformers itself runs
min_p last; for top_p beside min_p the order matters, and clients write these fields for vLLM.
Everything is float64 on one row at a time, so a row does not depend on the batch it came in.
Finite logits and parameters within the contract's limits give no NaN.

Must not know: torch, randomness, text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from chiasm_worker.request import SamplingParams

Row = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

_FIRST_NUCLEUS = 64
_NUCLEUS_GROWTH = 8


class SeenTokens:
    """Which tokens a prompt and its answer hold; follows a list that only grows."""

    def __init__(self, token_ids: Sequence[int], num_prompt: int, vocab_size: int) -> None:
        self._token_ids = token_ids
        self._num_seen = num_prompt
        self._output: dict[int, int] = {}
        # A prompt may hold placeholders that have no logit.
        prompt = np.asarray(token_ids[:num_prompt], dtype=np.int64)
        self._anywhere = np.zeros(vocab_size, dtype=np.bool_)
        self._anywhere[prompt[prompt < vocab_size]] = True

    def update(self) -> None:
        """Take in the tokens that came since."""
        for token_id in self._token_ids[self._num_seen :]:
            self._output[token_id] = self._output.get(token_id, 0) + 1
            self._anywhere[token_id] = True
        self._num_seen = len(self._token_ids)

    def anywhere(self) -> Ids:
        """Tokens of the prompt or the output."""
        return np.flatnonzero(self._anywhere)

    def output(self) -> tuple[Ids, Row]:
        """Tokens of the output, and how often each came."""
        count = len(self._output)
        ids = np.fromiter(self._output.keys(), np.int64, count)
        return ids, np.fromiter(self._output.values(), np.float64, count)


def adjusts(params: SamplingParams) -> bool:
    """Whether `adjust` would change anything at some step."""
    return bool(params.min_tokens or params.logit_bias) or penalises(params)


def penalises(params: SamplingParams) -> bool:
    """Whether tokens that were seen count."""
    return (
        params.repetition_penalty != 1.0
        or params.frequency_penalty != 0.0
        or params.presence_penalty != 0.0
    )


def adjust(row: Row, params: SamplingParams, masked: Ids, seen: SeenTokens | None) -> Row:
    """A changed copy of `row` [vocab_size]; `masked` tokens cannot be chosen at this step."""
    row = row.copy()
    row[masked] = -np.inf
    if params.logit_bias:
        ids = np.fromiter(params.logit_bias.keys(), np.int64)
        row[ids] += np.fromiter(params.logit_bias.values(), np.float64)
    if seen is None:
        return row
    if params.repetition_penalty != 1.0:
        ids = seen.anywhere()
        values, penalty = row[ids], params.repetition_penalty
        row[ids] = np.where(values < 0, values * penalty, values / penalty)
    ids, counts = seen.output()
    row[ids] -= params.frequency_penalty * counts
    row[ids] -= params.presence_penalty
    return row


def candidates(row: Row, params: SamplingParams) -> tuple[Ids, Row]:
    """The tokens that may be drawn, and their logits up to a constant; temperature is above 0."""
    with np.errstate(over="ignore"):  # Far below the likeliest at a tiny temperature: -inf.
        scaled = (row - row.max()) / params.temperature
    ids: Ids = np.arange(len(row), dtype=np.int64)
    if params.min_p > 0:
        ids, scaled = _take(ids, scaled, np.exp(scaled) >= params.min_p)
    if 0 < params.top_k < len(scaled):
        # Equals of the last one stay, as in transformers.
        ids, scaled = _take(ids, scaled, scaled >= largest(scaled, params.top_k))
    if params.top_p < 1:
        ids, scaled = _take(ids, scaled, _nucleus(scaled, params.top_p))
    return ids, scaled


def largest(row: Row, count: int) -> float:
    """The `count`-th largest value."""
    place = len(row) - count
    return float(np.partition(row, place)[place])


def likeliest(row: Row, count: int) -> Ids:
    """Indices of the `count` largest values, largest first, of equals the first."""
    if count >= len(row):
        return np.argsort(-row, kind="stable")
    ids = np.flatnonzero(row >= largest(row, count))
    return ids[np.argsort(-row[ids], kind="stable")][:count]


def _take(ids: Ids, scaled: Row, kept: Ids | npt.NDArray[np.bool_]) -> tuple[Ids, Row]:
    return ids[kept], scaled[kept]


def _nucleus(scaled: Row, top_p: float) -> Ids:
    """Indices of the fewest likeliest tokens whose probabilities add up to `top_p`.

    Sorting a whole vocabulary costs milliseconds, and a few tokens are mostly enough.
    """
    probs = np.exp(scaled)
    probs /= probs.sum()
    size = _FIRST_NUCLEUS
    while True:
        order = likeliest(scaled, size)
        cumulated = np.cumsum(probs[order])
        if len(order) == len(probs) or cumulated[-1] >= top_p:
            return order[: 1 + np.count_nonzero(cumulated[:-1] < top_p)]
        size *= _NUCLEUS_GROWTH
