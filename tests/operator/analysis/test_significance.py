"""Each test against scipy's on fresh random counts."""

import math
import random

import numpy as np
import pytest
from chiasm_operator.reconcile.analysis import significance
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

# Both sum the same terms in another order; lgamma of thousands carries about 1e-12.
SUMMED = 1e-8
counts = st.integers(0, 300)


@given(counts, counts, counts, counts)
def test_more_often_is_fishers_exact_test(bad: int, good: int, other_bad: int, other_good: int):
    table = [[bad, good], [other_bad, other_good]]
    expected = stats.fisher_exact(table, alternative="greater").pvalue
    ours = significance.more_often(bad, bad + good, other_bad, other_bad + other_good)
    assert ours == pytest.approx(expected, rel=1e-6, abs=SUMMED)


@given(counts, st.integers(0, 500), st.floats(0, 1))
def test_binomial_tails_are_exact(successes: int, more: int, probability: float):
    trials = successes + more
    assert significance.at_least(successes, trials, probability) == pytest.approx(
        stats.binom.sf(successes - 1, trials, probability), rel=1e-6, abs=SUMMED
    )
    assert significance.at_most(successes, trials, probability) == pytest.approx(
        stats.binom.cdf(successes, trials, probability), rel=1e-6, abs=SUMMED
    )


@given(st.integers(0, 50), st.integers(1, 300), st.integers(0, 50), st.integers(1, 300))
def test_larger_rate_conditions_on_the_sum(events: int, size: int, others: int, other_size: int):
    expected = 1.0
    if events:
        share = size / (size + other_size)
        expected = stats.binomtest(events, events + others, share, "greater").pvalue
    ours = significance.larger_rate(events, size, others, other_size)
    assert ours == pytest.approx(expected, rel=1e-6, abs=SUMMED)


classes = st.lists(st.integers(0, 40), min_size=5, max_size=5)


@given(classes, classes)
def test_larger_values_is_the_rank_sum_test_with_ties(mine: list[int], theirs: list[int]):
    ours = significance.larger_values(mine, theirs)
    if min(sum(mine), sum(theirs)) < 10:
        assert ours == 1.0
        return
    values = [np.repeat(range(5), sample) for sample in (mine, theirs)]
    if len(set(np.concatenate(values))) == 1:
        assert ours == 1.0
        return
    expected = stats.mannwhitneyu(*values, alternative="greater", method="asymptotic").pvalue
    assert ours == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(st.integers(30, 400), st.integers(30, 400), st.integers(0, 2**32 - 1))
def test_different_means_is_welchs_up_to_the_normal_tail(size: int, other_size: int, seed: int):
    draw = np.random.default_rng(seed)
    mine, theirs = draw.normal(10, 3, size), draw.normal(10, 1, other_size)
    statistic = stats.ttest_ind(mine, theirs, equal_var=False).statistic
    ours = significance.different_means(
        size, mine.mean(), mine.var(ddof=1), other_size, theirs.mean(), theirs.var(ddof=1)
    )
    assert ours == pytest.approx(2 * stats.norm.sf(abs(statistic)), rel=1e-9)


def test_thousands_neither_overflow_nor_vanish():
    likely = significance.more_often(50_000, 1_000_000, 50_000, 1_000_000)
    assert likely == pytest.approx(0.5, abs=0.01)
    assert 0 <= significance.more_often(60_000, 1_000_000, 50_000, 1_000_000) < 1e-100
    assert significance.more_often(0, 10, 5, 10) == pytest.approx(1.0)


def test_few_values_prove_nothing():
    assert significance.larger_values((0, 9), (9, 0)) == 1.0
    assert significance.different_means(29, 100.0, 0.0, 500, 1.0, 0.0) == 1.0


def test_the_rank_sum_test_is_calibrated():
    """Samples of one distribution are called different as often as the p-value says."""
    draw = random.Random(5)
    found = 0
    rounds, alpha = 2000, 0.05
    for _ in range(rounds):
        samples = [[0] * 6 for _ in range(2)]
        for sample, size in zip(samples, (40, 400), strict=True):
            for _ in range(size):
                sample[min(5, int(draw.expovariate(0.7)))] += 1
        found += significance.larger_values(*samples) < alpha
    deviation = math.sqrt(alpha * (1 - alpha) * rounds)
    assert found <= alpha * rounds + 4 * deviation  # 4 sigma: one run in 30,000
