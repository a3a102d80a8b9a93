"""Four one-sided tests that answer one question: how likely would the canary look this bad, or
worse, if it were not worse than stable?

Each returns a p-value. Counts are exact and may be tiny, so proportions use exact tests (no normal
approximation hides that five requests prove little). What a test assumes stands in its docstring.

Must not know: what is counted, thresholds, versions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

_NORMAL = NormalDist()


def more_often(bad: int, total: int, other_bad: int, other_total: int) -> float:
    """Fisher's exact test that the first proportion is larger, given both margins.

    Assumes that requests fail independently. R. A. Fisher, "The Logic of Inductive Inference"
    (1935). Terms are summed from the likeliest side as logarithms, so that large counts neither
    overflow nor vanish.
    """
    all_bad, everything = bad + other_bad, total + other_total
    first, last = bad, min(all_bad, total)
    base = _log_choose(everything, all_bad)
    terms = (
        _log_choose(total, number) + _log_choose(other_total, all_bad - number) - base
        for number in range(first, last + 1)
        if all_bad - number <= other_total
    )
    return min(1.0, math.fsum(map(math.exp, terms)))


def larger_rate(events: int, exposure: int, other_events: int, other_exposure: int) -> float:
    """That the first rate of events per unit of exposure is larger (an event may come more than
    once per request): given the sum of both, the first count is binomial.

    J. Przyborowski and H. Wilenski, "Homogeneity of Results in Testing Samples from Poisson
    Series" (1940).
    """
    share = exposure / (exposure + other_exposure) if exposure else 0.0
    return at_least(events, events + other_events, share)


def at_least(successes: int, trials: int, probability: float) -> float:
    """Chance of so many successes or more in independent trials."""
    if successes <= 0:
        return 1.0
    if probability <= 0.0:
        return 0.0
    if probability >= 1.0:
        return 1.0 if successes <= trials else 0.0
    yes, no = math.log(probability), math.log1p(-probability)
    terms = (
        math.exp(_log_choose(trials, number) + number * yes + (trials - number) * no)
        for number in range(successes, trials + 1)
    )
    return min(1.0, math.fsum(terms))


def at_most(successes: int, trials: int, probability: float) -> float:
    """Chance of so many successes or fewer in independent trials."""
    return at_least(trials - successes, trials, 1.0 - probability)


def larger_values(counts: Sequence[int], others: Sequence[int]) -> float:
    """Mann and Whitney's rank sum test, that values of the first sample tend to be larger; both
    are given as counts by ordered classes, values of one class as ties.

    Assumes independent values, so each answer may bring one only. Normal approximation with the
    correction for ties and for continuity, which is fine from about ten values a side; fewer are
    not judged (1.0). H. B. Mann and D. R. Whitney (1947).
    """
    size, other_size = sum(counts), sum(others)
    if min(size, other_size) < _MIN_RANKED:
        return 1.0
    wins, below = 0.0, 0
    for mine, theirs in zip(counts, others, strict=True):
        wins += mine * (below + theirs / 2)
        below += theirs
    everything = size + other_size
    ties = sum(
        (mine + theirs) ** 3 - (mine + theirs) for mine, theirs in zip(counts, others, strict=True)
    )
    variance = size * other_size / 12 * (everything + 1 - ties / (everything * (everything - 1)))
    if variance <= 0:  # all values in one class
        return 1.0
    return _upper_tail((wins - size * other_size / 2 - 0.5) / math.sqrt(variance))


_MIN_RANKED = 10


def different_means(
    count: int,
    mean: float,
    variance: float,
    other_count: int,
    other_mean: float,
    other_variance: float,
) -> float:
    """Two-sided: that two means differ, each with the variance of its own sample (Welch); normal
    instead of Student's distribution, so fewer than thirty values a side are not judged (1.0)."""
    if min(count, other_count) < _MIN_AVERAGED:
        return 1.0
    spread = variance / count + other_variance / other_count
    if spread <= 0:
        return 1.0 if mean == other_mean else 0.0
    return min(1.0, 2 * _upper_tail(abs(mean - other_mean) / math.sqrt(spread)))


_MIN_AVERAGED = 30


def _upper_tail(value: float) -> float:
    return _NORMAL.cdf(-value)


def _log_choose(whole: int, part: int) -> float:
    return math.lgamma(whole + 1) - math.lgamma(part + 1) - math.lgamma(whole - part + 1)
