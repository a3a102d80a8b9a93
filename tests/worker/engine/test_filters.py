"""Filters against transformers' own LogitsProcessors, and draws against the plain distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from chiasm_worker.engine.filters import Row, SeenTokens, adjust, candidates, likeliest
from chiasm_worker.engine.noise import draw, random_bits
from chiasm_worker.request import SamplingParams
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

VOCAB = 500
PROMPT = [3, 3, 400, 17]
END = [5, 6]


def transformers_scores(row: Row, wish: SamplingParams, output: list[int]) -> torch.Tensor:
    """What transformers' classes make of a row, in the order that `filters` states."""
    processors: list[Any] = [
        MinNewTokensLengthLogitsProcessor(len(PROMPT), wish.min_tokens, END, device="cpu"),
        RepetitionPenaltyLogitsProcessor(wish.repetition_penalty),
        TemperatureLogitsWarper(wish.temperature),
        MinPLogitsWarper(wish.min_p),
        TopPLogitsWarper(wish.top_p),
    ]
    if wish.logit_bias:
        bias = {(token_id,): value for token_id, value in wish.logit_bias.items()}
        processors.insert(1, SequenceBiasLogitsProcessor(bias))
    if wish.top_k:
        processors.insert(-1, TopKLogitsWarper(wish.top_k))
    ids = torch.tensor([PROMPT + output])
    scores: torch.Tensor = LogitsProcessorList(processors)(ids, torch.from_numpy(row)[None])[0]
    return scores


def adjusted(row: Row, wish: SamplingParams, output: list[int]) -> Row:
    seen = SeenTokens(PROMPT + output, len(PROMPT), VOCAB)
    seen.update()
    masked = np.array(END if len(output) < wish.min_tokens else [], dtype=np.int64)
    return adjust(row, wish, masked, seen)


WISHES = st.builds(
    SamplingParams,
    max_tokens=st.just(100),
    temperature=st.floats(0.05, 2),
    top_p=st.floats(0.01, 1),
    top_k=st.integers(0, 60),
    min_p=st.floats(0, 0.5),
    repetition_penalty=st.floats(0.5, 2),
    logit_bias=st.dictionaries(
        # transformers keeps biases in fp32.
        st.integers(0, VOCAB - 1),
        st.floats(-100, 100, width=32),
        max_size=4,
    ),
    min_tokens=st.integers(0, 6),
)


@given(
    wish=WISHES,
    output=st.lists(st.integers(0, VOCAB - 1), max_size=6),
    seed=st.integers(0, 2**32),
    scale=st.sampled_from([0.3, 3.0]),
)
@settings(max_examples=200)
def test_transformers_keeps_the_same_tokens_and_gives_them_the_same_probabilities(
    wish: SamplingParams, output: list[int], seed: int, scale: float
):
    row = scale * np.random.default_rng(seed).standard_normal(VOCAB)
    want = transformers_scores(row, wish, output)
    ids, scaled = candidates(adjusted(row, wish, output), wish)
    plain = torch.from_numpy(adjusted(row, wish, output) / wish.temperature).softmax(-1)
    kept, theirs = set(ids[np.isfinite(scaled)].tolist()), torch.isfinite(want)
    # With top_p 1 transformers drops what is too unlikely for a float64 to tell from nothing.
    assert all(plain[i] < 1e-12 for i in kept ^ set(theirs.nonzero()[:, 0].tolist()))
    probs = torch.from_numpy(scaled).softmax(-1)
    # fp64 on both sides; ours subtracts the highest logit first.
    torch.testing.assert_close(probs, want.softmax(-1)[ids], atol=1e-11, rtol=1e-9)


def test_equals_of_the_last_one_stay_as_in_transformers():
    row = np.array([1.0, 2.0, 2.0, 2.0, 3.0])
    wish = SamplingParams(1, temperature=1.0, top_k=2)
    want = TopKLogitsWarper(2)(None, torch.from_numpy(row)[None])[0]
    assert candidates(row, wish)[0].tolist() == torch.isfinite(want).nonzero()[:, 0].tolist()


@given(
    output=st.lists(st.integers(0, 9), max_size=12),
    presence=st.floats(-2, 2),
    frequency=st.floats(-2, 2),
)
def test_presence_and_frequency_count_the_output_alone(
    output: list[int], presence: float, frequency: float
):
    prompt = [0, 1, 1, 600]
    wish = SamplingParams(1, presence_penalty=presence, frequency_penalty=frequency)
    tokens = list(prompt)
    seen = SeenTokens(tokens, len(prompt), 10)
    row = np.linspace(-3, 3, 10)
    for token_id in output:
        tokens.append(token_id)
        seen.update()
    got = adjust(row, wish, np.array([], dtype=np.int64), seen)
    for token_id in range(10):
        count = output.count(token_id)
        want = row[token_id] - frequency * count - presence * (count > 0)
        assert got[token_id] == pytest.approx(want, abs=1e-12)


def test_repetition_counts_the_prompt_too_and_ids_without_a_logit_count_nowhere():
    seen = SeenTokens([0, 1, 600, 2], 3, 4)
    seen.update()
    wish = SamplingParams(1, repetition_penalty=2.0)
    row = np.array([4.0, -4.0, 4.0, 4.0])
    got = adjust(row, wish, np.array([], dtype=np.int64), seen)
    assert got.tolist() == [2.0, -8.0, 2.0, 4.0]
    assert row.tolist() == [4.0, -4.0, 4.0, 4.0], "the row is another's to read"


@given(values=st.lists(st.integers(0, 9), min_size=1, max_size=40), count=st.integers(1, 50))
def test_likeliest_sorts_equals_by_id(values: list[int], count: int):
    want = sorted(range(len(values)), key=lambda i: (-values[i], i))[:count]
    assert likeliest(np.array(values, dtype=np.float64), count).tolist() == want


CASES: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"temperature": 1.7, "top_k": 7},
    {"top_p": 0.8, "min_p": 0.02},
    {"repetition_penalty": 1.4, "logit_bias": {3: 2.0, 9: -1.0}},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_draws_follow_the_distribution(case: dict[str, Any]):
    """Pearson's chi-square on fresh logits; its tail beyond the bound has probability 1e-9."""
    rng = np.random.default_rng()
    row = 1.5 * rng.standard_normal(VOCAB)[:40]
    wish = SamplingParams(1, **{"temperature": 1.0, **case})
    seen = SeenTokens([3, 4], 2, len(row))
    ids, scaled = candidates(adjust(row, wish, np.array([], dtype=np.int64), seen), wish)
    want = torch.from_numpy(scaled).softmax(-1).numpy()
    num_draws = 20_000
    seed = int(rng.integers(2**62))
    drawn = [draw(scaled, random_bits(seed, 0, position, ids)) for position in range(num_draws)]
    counts = np.bincount(drawn, minlength=len(ids))
    often = want * num_draws >= 5
    expected = np.append(want[often], want[~often].sum()) * num_draws
    observed = np.append(counts[often], counts[~often].sum())
    present = expected > 0
    statistic = float(((observed - expected)[present] ** 2 / expected[present]).sum())
    assert statistic < chi_square_bound(int(present.sum()) - 1), f"seed {seed}"


def chi_square_bound(freedom: int) -> float:
    """Wilson and Hilferty's approximation of the quantile at 1 - 1e-9 (6 standard deviations)."""
    if freedom == 0:
        return 1e-6
    share = 2 / (9 * freedom)
    return float(freedom * (1 - share + 6 * math.sqrt(share)) ** 3)
