"""Pass, fail or hold, from what the sidecars counted of both revisions in the same window.

- Concurrent: both sides answered at the same time, so that load, time of day and a slow node
  weigh on both. There is no stored baseline.
- Per modality: a canary that only breaks pictures fails, however much text drowns it.
- **Fail** needs two things: a difference that matters (the policy's limits) and that chance does
  not explain (`significance`). Each comparison gets its share of `Policy.alpha` (Bonferroni), so
  the chance that a look at a canary like stable fails is at most alpha; that several looks in a
  row must fail (`failureLimit`) is the state machine's.
- **Pass** needs samples: at least `min_samples` answers of both in every modality that either
  answered as often in. Absence of evidence holds, and never passes. A canary that is asked nothing
  but what is mirrored fails by what it does not answer, and passes by the agreement of its answers,
  where that is asked for. What was mirrored and late while others were answered is no evidence:
  it may be more than the canary has pods for, or requests that never end.

Must not know: pods, reports of single sidecars, clocks, steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from chiasm_contract.traffic import LATENCY_BOUNDS, Counts

from chiasm_operator.reconcile.analysis import significance


class Kind(StrEnum):
    """What a verdict means for the rollout."""

    PASS = "pass"  # noqa: S105 - a word, not a secret
    FAIL = "fail"
    HOLD = "hold"


@dataclass(frozen=True)
class Policy:
    """What counts as worse.

    Attributes:
        min_samples: answers of each revision that a pass needs, per modality.
        alpha: chance that one look fails a canary that is like stable.
        max_error_increase: share of requests by which errors may be more frequent.
        max_first_token_ratio, max_inter_token_ratio: of the medians, canary to stable.
        max_length_change: relative change of an answer's mean length, either way.
        max_guard_reject_increase: refused blocks per request beyond those of stable.
        min_agreement: share of shadowed answers that must be the same; None: not asked for.
    """

    min_samples: int = 50
    alpha: float = 0.01
    max_error_increase: float = 0.01
    max_first_token_ratio: float = 1.5
    max_inter_token_ratio: float = 1.5
    max_length_change: float = 0.5
    max_guard_reject_increase: float = 0.1
    min_agreement: float | None = None


@dataclass(frozen=True)
class Verdict:
    """A kind, a CamelCase reason, and a sentence with the numbers behind it."""

    kind: Kind
    reason: str
    message: str


@dataclass(frozen=True)
class _Finding:
    """One comparison: whether it matters, how likely chance explains it, and in words."""

    reason: str
    matters: bool
    p_value: float
    words: str


def judge(policy: Policy, canary: Mapping[str, Counts], stable: Mapping[str, Counts]) -> Verdict:
    """The verdict on `canary`; both map a modality to its counts."""
    nothing = Counts()
    found: list[tuple[str, _Finding]] = []
    for modality in sorted(canary):
        mine, theirs = canary[modality], stable.get(modality, nothing)
        found += [(modality, each) for each in _compare(policy, mine, theirs)]
    found.append(("all", _guard(policy, _Blocks.of(canary), _Blocks.of(stable))))
    limit = policy.alpha / max(1, len(found))
    bad = [each for each in found if each[1].matters and each[1].p_value < limit]
    if bad:
        modality, worst = min(bad, key=lambda each: each[1].p_value)
        chance = f"chance explains it with p = {worst.p_value:.1g}"
        return Verdict(Kind.FAIL, worst.reason, f"{modality}: {worst.words} ({chance}).")
    return _enough(policy, canary, stable)


def _enough(policy: Policy, canary: Mapping[str, Counts], stable: Mapping[str, Counts]) -> Verdict:
    """Pass or hold, where nothing is known to be worse."""
    asked = any(counts.requests for counts in canary.values())
    shadowed = sum(counts.shadowed for counts in canary.values())
    compared = policy.min_agreement is not None
    if not asked and not (compared and shadowed):
        return Verdict(Kind.HOLD, "NoData", _nothing(shadowed))
    short = _short(policy, canary, stable) if asked else ""
    if short:
        return Verdict(
            Kind.HOLD,
            "TooFewSamples",
            f"Answers {short}; {policy.min_samples} are needed of each modality "
            "(spec.rollout.analysis.minSamples).",
        )
    if compared and shadowed < policy.min_samples:
        return Verdict(
            Kind.HOLD,
            "TooFewSamples",
            f"{shadowed} requests were asked of both; {policy.min_samples} are needed "
            "(spec.rollout.analysis.minSamples, a mirror step makes them).",
        )
    late = "" if asked else _late(policy, canary)
    if late:
        return Verdict(Kind.HOLD, "TooFewSamples", late)
    total = sum(counts.answers for counts in canary.values())
    what = f"{total} answers" if asked else f"{shadowed} mirrored answers"
    return Verdict(Kind.PASS, "NotWorse", f"{what} of the canary are not worse.")


def _late(policy: Policy, canary: Mapping[str, Counts]) -> str:
    """Of which modality too much of what is mirrored is late to say that all is well."""
    for modality, counts in sorted(canary.items()):
        number = counts.shadow_late
        all_asked = counts.shadowed + counts.shadow_errors + number
        if _share(number, all_asked) > policy.max_error_increase:
            return (
                f"{modality}: {number} of {all_asked} mirrored requests were late while others "
                "were answered. Mirror less or give the canary more pods (setCanaryScale); if they "
                "stay late, some requests have no end there."
            )
    return ""


def _nothing(shadowed: int) -> str:
    if not shadowed:
        return "The canary has answered nothing yet."
    return (
        f"The canary has answered {shadowed} mirrored requests and no others; they are compared "
        "with spec.rollout.analysis.minAgreementPercent."
    )


def _short(policy: Policy, canary: Mapping[str, Counts], stable: Mapping[str, Counts]) -> str:
    """Whose answers are too few, and how many there are; empty when there are enough."""
    mine, theirs = [], []
    for modality in sorted(canary.keys() | stable.keys()):
        seen = canary.get(modality, Counts()).answers
        asked = stable.get(modality, Counts()).answers
        if seen < policy.min_samples and (asked >= policy.min_samples or seen):
            mine.append(f"{modality} {seen}")
        if seen >= policy.min_samples > asked:
            theirs.append(f"{modality} {asked}")
    if not mine and all(each.answers < policy.min_samples for each in canary.values()):
        mine = ["none"]  # all that was asked failed, too seldom to be a verdict
    sides = (("the canary", mine), ("stable", theirs))
    return ", ".join(f"of {side} so far: {', '.join(found)}" for side, found in sides if found)


def _compare(policy: Policy, canary: Counts, stable: Counts) -> Iterator[_Finding]:
    yield _errors(policy, canary, stable)
    if canary.shadow_errors:
        yield _shadow_errors(policy, canary, stable)
    for reason, what, pick, limit in (
        ("SlowFirstToken", "first token", _first_token, policy.max_first_token_ratio),
        ("SlowTokens", "time between tokens", _inter_token, policy.max_inter_token_ratio),
    ):
        yield _latency(reason, what, pick(canary), pick(stable), limit)
    yield _length(policy, canary, stable)
    if policy.min_agreement is not None:
        yield _agreement(policy.min_agreement, canary)


def _errors(policy: Policy, canary: Counts, stable: Counts) -> _Finding:
    mine, theirs = _share(canary.errors, canary.requests), _share(stable.errors, stable.requests)
    return _Finding(
        "ErrorRate",
        mine > theirs + policy.max_error_increase,
        significance.more_often(canary.errors, canary.requests, stable.errors, stable.requests),
        f"{canary.errors} of {canary.requests} requests failed ({mine:.1%}), "
        f"{stable.errors} of {stable.requests} on stable ({theirs:.1%})",
    )


def _shadow_errors(policy: Policy, canary: Counts, stable: Counts) -> _Finding:
    """Only what stable has answered is mirrored: it is compared with how often stable fails."""
    asked = canary.shadowed + canary.shadow_errors
    mine, theirs = _share(canary.shadow_errors, asked), _share(stable.errors, stable.requests)
    allowed = min(1.0, theirs + policy.max_error_increase)
    return _Finding(
        "ErrorRate",
        mine > allowed,
        significance.at_least(canary.shadow_errors, asked, allowed),
        f"{canary.shadow_errors} of {asked} mirrored requests failed ({mine:.1%}), "
        f"{stable.errors} of {stable.requests} on stable ({theirs:.1%})",
    )


def _first_token(counts: Counts) -> tuple[int, ...]:
    return counts.first_token


def _inter_token(counts: Counts) -> tuple[int, ...]:
    return counts.inter_token


def _latency(
    reason: str, what: str, canary: tuple[int, ...], stable: tuple[int, ...], limit: float
) -> _Finding:
    mine, theirs = median(canary), median(stable)
    return _Finding(
        reason,
        mine > theirs * limit,
        significance.larger_values(canary, stable),
        f"median {what} {mine * 1e3:.0f} ms, {theirs * 1e3:.0f} ms on stable",
    )


def _length(policy: Policy, canary: Counts, stable: Counts) -> _Finding:
    mine, theirs = _mean(canary), _mean(stable)
    return _Finding(
        "OutputLength",
        abs(mine - theirs) > policy.max_length_change * theirs,
        significance.different_means(
            canary.answers, mine, _variance(canary), stable.answers, theirs, _variance(stable)
        ),
        f"an answer has {mine:.1f} tokens, {theirs:.1f} on stable",
    )


@dataclass(frozen=True)
class _Blocks:
    """Of all modalities together: a refused block does not say whose request wanted it."""

    refused: int
    requests: int

    @classmethod
    def of(cls, counts: Mapping[str, Counts]) -> _Blocks:
        values = counts.values()
        return cls(
            sum(each.guard_rejects for each in values), sum(each.requests for each in values)
        )


def _guard(policy: Policy, canary: _Blocks, stable: _Blocks) -> _Finding:
    mine, theirs = (_share(each.refused, each.requests) for each in (canary, stable))
    return _Finding(
        "GuardRejects",
        mine > theirs + policy.max_guard_reject_increase,
        significance.larger_rate(canary.refused, canary.requests, stable.refused, stable.requests),
        f"{mine:.2f} blocks were refused a request, {theirs:.2f} on stable",
    )


def _agreement(minimum: float, canary: Counts) -> _Finding:
    share = _share(canary.agreed, canary.shadowed)
    return _Finding(
        "Disagreement",
        canary.shadowed > 0 and share < minimum,
        significance.at_most(canary.agreed, canary.shadowed, minimum) if canary.shadowed else 1.0,
        f"{canary.agreed} of {canary.shadowed} shadowed answers are those of stable "
        f"({share:.0%}); {minimum:.0%} are asked for",
    )


def median(classes: tuple[int, ...]) -> float:
    """Seconds, by linear interpolation in the class where the middle value lies; 0 of nothing."""
    middle, below = sum(classes) / 2, 0
    edges = (0.0, *LATENCY_BOUNDS, LATENCY_BOUNDS[-1])
    for number, count in enumerate(classes):
        if count and below + count >= middle:
            low, high = edges[number], edges[number + 1]
            return low + (high - low) * (middle - below) / count
        below += count
    return 0.0


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _mean(counts: Counts) -> float:
    return _share(counts.output_tokens, counts.answers)


def _variance(counts: Counts) -> float:
    if counts.answers < 2:
        return 0.0
    squares = counts.output_tokens_squared - counts.output_tokens**2 / counts.answers
    return max(0.0, squares / (counts.answers - 1))
