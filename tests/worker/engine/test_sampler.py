from __future__ import annotations

import pytest
import torch
from chiasm_worker.engine.sampler import RowSampler, sample
from chiasm_worker.request import SamplingParams


def sampler(**params: object) -> RowSampler:
    return RowSampler(SamplingParams(max_tokens=1, **params))  # type: ignore[arg-type]


def draws(row: RowSampler, logits: torch.Tensor, count: int) -> list[int]:
    return [row.choose(logits) for _ in range(count)]


def test_greedy_takes_the_most_likely_and_the_first_of_equals():
    logits = torch.tensor([[0.0, 3.0, 1.0], [2.0, 0.0, 2.0]])
    rows = [sampler(), sampler(temperature=1.0, top_k=1)]
    assert [token.token_id for token in sample(logits, rows)] == [1, 0]


def test_a_seed_repeats_its_draws_whatever_shares_the_batch():
    torch.manual_seed(1)
    steps = torch.randn(20, 3, 50)
    alone, crowded = sampler(temperature=1.0, seed=5), sampler(temperature=1.0, seed=5)
    others = [sampler(temperature=1.3, seed=6), sampler(temperature=0.7)]
    first = [sample(step[1:2], [alone])[0].token_id for step in steps]
    second = [sample(step, [others[0], crowded, others[1]])[1].token_id for step in steps]
    assert first == second


def test_without_a_seed_requests_differ():
    logits = torch.zeros(1000)
    assert draws(sampler(temperature=1.0), logits, 8) != draws(sampler(temperature=1.0), logits, 8)


def test_draws_follow_the_softmax_at_the_temperature():
    logits = torch.tensor([0.0, 1.0, 2.0])
    want = (logits / 0.5).softmax(-1)
    seen = torch.bincount(torch.tensor(draws(sampler(temperature=0.5, seed=0), logits, 20000)))
    torch.testing.assert_close(seen / 20000, want, atol=0.01, rtol=0)


@pytest.mark.parametrize(
    ("params", "allowed"),
    [
        ({"top_k": 2}, {3, 4}),
        # probabilities about .64 .24 .09 .03 .01
        ({"top_p": 0.6}, {4}),
        ({"top_p": 0.7}, {3, 4}),
        ({"top_p": 0.95, "top_k": 4}, {2, 3, 4}),
        ({}, {0, 1, 2, 3, 4}),
    ],
)
def test_filters_keep_the_most_likely(params: dict[str, float], allowed: set[int]):
    logits = torch.arange(5.0)
    assert set(draws(sampler(temperature=1.0, seed=3, **params), logits, 3000)) == allowed


def test_logprobs_are_the_models_own_and_come_with_alternatives():
    logits = torch.tensor([[0.0, 3.0, 1.0, 2.0]])
    (token,) = sample(logits, [sampler(temperature=2.0, seed=1, num_logprobs=2)])
    assert token.logprobs is not None
    want = logits[0].log_softmax(-1)
    assert token.logprobs.logprob == pytest.approx(float(want[token.token_id]))
    assert token.logprobs.top_ids == (1, 3)
    assert token.logprobs.top_logprobs == pytest.approx(want[[1, 3]].tolist())
    assert sample(logits, [sampler()])[0].logprobs is None
