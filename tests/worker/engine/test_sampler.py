"""A row's token depends on the row and its own parameters, and follows its own distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from chiasm_worker.engine.filters import adjust, candidates
from chiasm_worker.engine.sampler import RowSampler, SampledToken, sample
from chiasm_worker.request import SamplingParams
from hypothesis import given
from hypothesis import strategies as st

VOCAB = 300


def params(**fields: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 1000, **fields})


def sampler(token_ids: Sequence[int] = (), **fields: Any) -> RowSampler:
    return RowSampler(params(**fields), token_ids, end_ids={7, 8})


def draws(count: int, logits: torch.Tensor, **fields: Any) -> list[int]:
    """`count` draws from one row of logits, each at the next position."""
    token_ids: list[int] = []
    row = sampler(token_ids, **fields)
    for _ in range(count):
        token_ids.append(row.choose(logits.double().numpy()).token_id)
    return token_ids


SAMPLING = st.builds(
    params,
    temperature=st.sampled_from([0.0, 1e-300, 0.01, 0.7, 1.0, 2.0]),
    top_p=st.sampled_from([1e-9, 0.3, 0.9, 1.0]),
    top_k=st.sampled_from([0, 1, 5, 50, VOCAB, 10**6]),
    min_p=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    presence_penalty=st.sampled_from([0.0, -2.0, 0.5, 2.0]),
    frequency_penalty=st.sampled_from([0.0, -2.0, 0.3, 2.0]),
    repetition_penalty=st.sampled_from([1.0, 0.01, 1.3, 100.0]),
    logit_bias=st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-100, 100), max_size=4),
    seed=st.integers(-(2**63), 2**63 - 1),
    min_tokens=st.sampled_from([0, 2, 100]),
    num_logprobs=st.sampled_from([None, 0, 3]),
)
ROWS = st.lists(
    st.tuples(SAMPLING, st.lists(st.integers(0, VOCAB + 20), max_size=8), st.integers(0, 3)),
    min_size=1,
    max_size=5,
)
Asked = list[tuple[SamplingParams, list[int], int]]


def run(steps: torch.Tensor, asked: Asked) -> list[list[SampledToken]]:
    """What rows that share a batch choose, step by step; prompts may hold ids beyond the logits."""
    sequences = [list(prompt) for _, prompt, _ in asked]
    rows = [
        RowSampler(wish, tokens, {7, 8}, choice)
        for (wish, _, choice), tokens in zip(asked, sequences, strict=True)
    ]
    seen: list[list[SampledToken]] = [[] for _ in asked]
    for logits in steps:
        for i, token in enumerate(sample(logits, rows)):
            seen[i].append(token)
            sequences[i].append(token.token_id)
    return seen


@given(asked=ROWS, seed=st.integers(0, 2**32), scale=st.sampled_from([0.01, 1.0, 30.0, 1e4]))
def test_a_row_alone_is_the_row_in_a_batch_bit_for_bit(asked: Asked, seed: int, scale: float):
    generator = torch.Generator().manual_seed(seed)
    steps = scale * torch.randn(4, len(asked), VOCAB, generator=generator)
    together = run(steps, asked)
    assert all(0 <= token.token_id < VOCAB for row in together for token in row)
    for i, wish in enumerate(asked):
        assert run(steps[:, i : i + 1].clone(), [wish])[0] == together[i]


@given(wish=SAMPLING, seed=st.integers(0, 2**32), scale=st.sampled_from([0.0, 1.0, 1e4]))
def test_no_parameters_make_a_logit_that_is_no_number(
    wish: SamplingParams, seed: int, scale: float
):
    row = scale * np.random.default_rng(seed).standard_normal(VOCAB)
    adjusted = adjust(row, wish, np.array([7, 8]), None)
    assert not np.isnan(adjusted).any()
    if wish.temperature:
        ids, scaled = candidates(adjusted, wish)
        assert len(ids) >= 1
        assert not np.isnan(scaled).any()
        assert scaled.max() == 0.0


def test_greedy_takes_the_most_likely_and_the_first_of_equals():
    logits = torch.tensor([[0.0, 3.0, 1.0], [2.0, 0.0, 2.0], [2.0, 0.0, 2.0]])
    rows = [sampler(), sampler(temperature=1.0, top_k=1), sampler(num_logprobs=0)]
    assert [token.token_id for token in sample(logits, rows)] == [1, 0, 0]


def test_rows_that_ask_for_nothing_share_one_argmax(monkeypatch: pytest.MonkeyPatch):
    def own(*_: object) -> SampledToken:
        raise AssertionError("computed by itself")

    monkeypatch.setattr(RowSampler, "choose", own)
    rows = [sampler(), sampler(seed=3, top_p=0.5, min_p=0.5, max_tokens=3), sampler(top_k=4)]
    assert [token.token_id for token in sample(torch.eye(3), rows)] == [0, 1, 2]


def test_a_resumed_sequence_draws_what_it_would_have_drawn():
    logits = torch.randn(VOCAB)
    whole = draws(12, logits, temperature=1.0, seed=5, frequency_penalty=0.5)
    tokens = whole[:0]
    for i in range(12):  # A sampler made anew at each step knows no more than the tokens.
        row = RowSampler(params(temperature=1.0, seed=5, frequency_penalty=0.5), [])
        row._token_ids = tokens
        tokens.append(row.choose(logits.double().numpy()).token_id)
        assert tokens == whole[: i + 1]


def test_choices_and_seeds_and_positions_draw_differently():
    logits = torch.zeros(1, 10_000)
    first = draws(8, logits[0], temperature=1.0, seed=5)
    assert len(set(first)) == 8
    assert draws(8, logits[0], temperature=1.0, seed=5) == first
    assert draws(8, logits[0], temperature=1.0, seed=6) != first
    choices = [RowSampler(params(temperature=1.0, seed=5), [], (), choice) for choice in range(8)]
    drawn = [token.token_id for token in sample(logits.expand(8, -1), choices)]
    assert drawn[0] == first[0]
    assert len(set(drawn)) == 8


def test_without_a_seed_requests_differ():
    logits = torch.zeros(1000)
    assert draws(8, logits, temperature=1.0) != draws(8, logits, temperature=1.0)


def test_noise_in_the_logits_moves_hardly_any_draw():
    """Batches of different sizes round differently; a draw should survive that."""
    torch.manual_seed(0)
    logits = torch.randn(500, 2000).double().numpy()
    rounded = logits + 1e-6 * np.random.default_rng(0).standard_normal(logits.shape)
    row = sampler(temperature=1.0, seed=1)
    assert sum(row.choose(a) != row.choose(b) for a, b in zip(logits, rounded, strict=True)) <= 1


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({"top_k": 2}, {3, 4}),
        # probabilities about .64 .24 .09 .03 .01
        ({"top_p": 0.6}, {4}),
        ({"top_p": 0.7}, {3, 4}),
        ({"top_p": 0.95, "top_k": 4}, {2, 3, 4}),
        ({"min_p": 0.3}, {3, 4}),
        ({"logit_bias": {4: -100.0, 3: -100.0}}, {0, 1, 2}),
        ({}, {0, 1, 2, 3, 4}),
    ],
)
def test_filters_keep_the_most_likely(fields: dict[str, Any], allowed: set[int]):
    logits = torch.arange(5.0)
    assert set(draws(3000, logits, temperature=1.0, seed=3, **fields)) == allowed


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_end_tokens_wait_for_min_tokens(temperature: float):
    logits = torch.full((20,), -50.0)
    logits[[7, 8]] = 50.0
    tokens = draws(6, logits, temperature=temperature, min_tokens=4)
    assert not {7, 8} & set(tokens[:4])
    assert set(tokens[4:]) <= {7, 8}


def test_logprobs_are_the_models_own_and_come_with_alternatives():
    logits = torch.tensor([[0.0, 3.0, 1.0, 2.0]])
    wishes = {"temperature": 2.0, "seed": 1, "logit_bias": {0: 100.0}}
    (token,) = sample(logits, [sampler(num_logprobs=2, **wishes)])
    assert token.logprobs is not None
    want = logits[0].double().log_softmax(-1)
    assert token.token_id == 0
    assert token.logprobs.logprob == pytest.approx(float(want[0]))
    assert token.logprobs.top_ids == (1, 3)
    assert token.logprobs.top_logprobs == pytest.approx(want[[1, 3]].tolist())
    assert sample(logits, [sampler()])[0].logprobs is None
    (none,) = sample(logits, [sampler(num_logprobs=0)])
    assert none.logprobs is not None
    assert none.logprobs.top_ids == ()
