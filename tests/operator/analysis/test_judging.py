"""Verdicts on planted canaries, and on canaries that are like stable."""

import bisect
import math
import random
from dataclasses import dataclass

import pytest
from chiasm_contract.traffic import LATENCY_BOUNDS, Counts
from chiasm_operator.reconcile.analysis import Kind, Policy, judge
from chiasm_operator.reconcile.analysis.judging import median

POLICY = Policy()


@dataclass(frozen=True)
class Behaviour:
    """How one revision answers one modality."""

    error_rate: float = 0.01
    first_token: float = 0.2
    gap: float = 0.03
    tokens: float = 60
    rejects: float = 0.0
    agreement: float = 1.0


def answered(draw: random.Random, number: int, behaviour: Behaviour) -> Counts:
    """Counts of so many requests."""
    first, gaps = [0] * (len(LATENCY_BOUNDS) + 1), [0] * (len(LATENCY_BOUNDS) + 1)
    errors = answers = tokens = squares = rejects = agreed = 0
    for _ in range(number):
        if draw.random() < behaviour.error_rate:
            errors += 1
            continue
        answers += 1
        first[_class(draw.lognormvariate(math.log(behaviour.first_token), 0.4))] += 1
        gaps[_class(draw.lognormvariate(math.log(behaviour.gap), 0.3))] += 1
        length = 1 + int(draw.expovariate(1 / behaviour.tokens))
        tokens += length
        squares += length**2
        rejects += draw.random() < behaviour.rejects
        agreed += draw.random() < behaviour.agreement
    return Counts(
        requests=number,
        errors=errors,
        guard_rejects=rejects,
        first_token=tuple(first),
        inter_token=tuple(gaps),
        answers=answers,
        output_tokens=tokens,
        output_tokens_squared=squares,
        shadowed=answers,
        agreed=agreed,
    )


def _class(seconds: float) -> int:
    return bisect.bisect_left(LATENCY_BOUNDS, seconds)


HEALTHY = Behaviour()
FAULTS: dict[str, tuple[Behaviour, str]] = {
    "errors": (Behaviour(error_rate=0.3), "ErrorRate"),
    "crashing": (Behaviour(error_rate=1.0), "ErrorRate"),
    "slow to begin": (Behaviour(first_token=0.6), "SlowFirstToken"),
    "slow to go on": (Behaviour(gap=0.12), "SlowTokens"),
    "talks too much": (Behaviour(tokens=240), "OutputLength"),
    "says almost nothing": (Behaviour(tokens=8), "OutputLength"),
    "blocks are refused": (Behaviour(rejects=0.5), "GuardRejects"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_planted_fault_fails_for_its_own_reason(fault: str):
    behaviour, reason = FAULTS[fault]
    draw = random.Random(fault)
    canary = {"image": answered(draw, 100, behaviour)}
    stable = {"image": answered(draw, 1900, HEALTHY)}
    verdict = judge(POLICY, canary, stable)
    assert (verdict.kind, verdict.reason) == (Kind.FAIL, reason)
    assert verdict.message.startswith("all: " if reason == "GuardRejects" else "image: ")


def test_refused_blocks_count_where_no_request_is_known():
    draw = random.Random(9)
    stable = {"text": answered(draw, 1000, HEALTHY)}
    canary = {"text": answered(draw, 100, HEALTHY), "unknown": Counts(guard_rejects=60)}
    verdict = judge(POLICY, canary, stable)
    assert (verdict.kind, verdict.reason) == (Kind.FAIL, "GuardRejects")


def test_a_fault_of_pictures_only_is_not_drowned_by_text():
    draw = random.Random(1)
    canary = {
        "text": answered(draw, 2000, HEALTHY),
        "image": answered(draw, 30, Behaviour(error_rate=0.5)),
    }
    stable = {"text": answered(draw, 38_000, HEALTHY), "image": answered(draw, 570, HEALTHY)}
    verdict = judge(POLICY, canary, stable)
    assert (verdict.kind, verdict.reason) == (Kind.FAIL, "ErrorRate")
    assert verdict.message.startswith("image: ")


def test_wrong_answers_show_in_the_agreement_of_shadowed_requests():
    draw = random.Random(2)
    policy = Policy(min_agreement=0.95)
    stable = {"image": answered(draw, 500, HEALTHY)}
    wrong = judge(policy, {"image": answered(draw, 60, Behaviour(agreement=0.5))}, stable)
    assert (wrong.kind, wrong.reason) == (Kind.FAIL, "Disagreement")
    right = judge(policy, {"image": answered(draw, 60, HEALTHY)}, stable)
    assert right.kind is Kind.PASS
    without = answered(draw, 60, HEALTHY).model_copy(update={"shadowed": 0, "agreed": 0})
    assert judge(policy, {"image": without}, stable).kind is Kind.HOLD


def test_mirrored_answers_alone_are_judged_by_their_agreement():
    stable = {"text": answered(random.Random(10), 500, HEALTHY)}
    policy = Policy(min_agreement=0.95)
    for shadowed, agreed, kind, reason in (
        (60, 60, Kind.PASS, "NotWorse"),
        (60, 30, Kind.FAIL, "Disagreement"),
        (49, 49, Kind.HOLD, "TooFewSamples"),
        (0, 0, Kind.HOLD, "NoData"),
    ):
        canary = {"text": Counts(shadowed=shadowed, agreed=agreed)}
        verdict = judge(policy, canary, stable)
        assert (verdict.kind, verdict.reason) == (kind, reason)


@pytest.mark.parametrize("min_agreement", [None, 0.95])
def test_mirrored_requests_that_fail_are_errors(min_agreement: float | None):
    stable = {"text": answered(random.Random(12), 500, HEALTHY)}
    policy = Policy(min_agreement=min_agreement)
    seldom, often = (
        judge(policy, {"text": Counts(shadowed=60, agreed=60, shadow_errors=errors)}, stable)
        for errors in (1, 30)
    )
    assert seldom.kind is not Kind.FAIL
    assert (often.kind, often.reason) == (Kind.FAIL, "ErrorRate")
    assert "30 of 90 mirrored requests failed" in often.message


def test_mirrored_requests_that_are_late_while_others_are_answered_are_no_evidence():
    """A sound canary with pods for 5 % that is mirrored everything; or one in which some hang."""
    stable = {"text": answered(random.Random(13), 500, HEALTHY)}
    policy = Policy(min_agreement=0.95)
    busy = Counts(shadowed=60, agreed=60, shadow_late=30)
    verdict = judge(policy, {"text": busy}, stable)
    assert (verdict.kind, verdict.reason) == (Kind.HOLD, "TooFewSamples")
    assert "text: 30 of 90 mirrored requests were late" in verdict.message
    hardly = judge(policy, {"text": Counts(shadowed=300, agreed=300, shadow_late=2)}, stable)
    assert hardly.kind is Kind.PASS
    asked = answered(random.Random(14), 80, HEALTHY).model_copy(update={"shadow_late": 30})
    assert judge(policy, {"text": asked}, stable).kind is Kind.PASS, "clients' answers are evidence"


def test_mirrored_answers_excuse_no_modality_once_the_canary_is_asked():
    draw = random.Random(11)
    stable = {"image": answered(draw, 500, HEALTHY), "text": answered(draw, 500, HEALTHY)}
    canary = {"text": Counts(requests=60, answers=60, shadowed=60, agreed=60)}
    verdict = judge(Policy(min_agreement=0.95, max_length_change=9), canary, stable)
    assert (verdict.kind, verdict.reason) == (Kind.HOLD, "TooFewSamples")
    assert "image 0" in verdict.message


def test_no_data_holds():
    stable = {"text": answered(random.Random(3), 5000, HEALTHY)}
    for canary in ({}, {"text": Counts()}):
        verdict = judge(POLICY, canary, stable)
        assert (verdict.kind, verdict.reason) == (Kind.HOLD, "NoData")


def test_failures_too_few_for_a_verdict_do_not_pass():
    """Stable was hardly asked either, so no modality was short: 0 answers were "not worse"."""
    verdict = judge(
        Policy(min_samples=20),
        {"image": Counts(requests=2, errors=2)},
        {"image": Counts(requests=3, answers=3)},
    )
    assert verdict.kind is Kind.HOLD
    assert verdict.reason == "TooFewSamples"


def test_a_modality_that_only_stable_was_asked_in_holds():
    draw = random.Random(4)
    canary = {"text": answered(draw, 500, HEALTHY)}
    stable = {"text": answered(draw, 500, HEALTHY), "image": answered(draw, 60, HEALTHY)}
    verdict = judge(POLICY, canary, stable)
    assert (verdict.kind, verdict.reason) == (Kind.HOLD, "TooFewSamples")
    assert "image 0" in verdict.message


def test_answers_that_nothing_can_be_compared_with_hold():
    """40 of 100 failed, stable was not asked: chance explains any difference from nothing."""
    canary = {"text": Counts(requests=100, errors=40, answers=60)}
    verdict = judge(POLICY, canary, {})
    assert (verdict.kind, verdict.reason) == (Kind.HOLD, "TooFewSamples")
    assert "of stable so far: text 0" in verdict.message
    verdict = judge(POLICY, canary, {"text": Counts(requests=49, answers=49)})
    assert verdict.kind is not Kind.PASS


def test_enough_healthy_answers_pass():
    draw = random.Random(5)
    canary = {"text": answered(draw, 80, HEALTHY)}
    assert judge(POLICY, canary, {"text": answered(draw, 1500, HEALTHY)}).kind is Kind.PASS


def test_a_few_unlucky_requests_are_not_a_fault():
    draw = random.Random(6)
    stable = {"text": answered(draw, 1000, HEALTHY)}
    unlucky = Counts(requests=3, errors=1)
    assert judge(POLICY, {"text": unlucky}, stable).kind is Kind.HOLD


def test_a_dead_canary_fails_on_five_requests():
    stable = {"text": Counts(requests=100, errors=1)}
    assert judge(POLICY, {"text": Counts(requests=5, errors=5)}, stable).kind is Kind.FAIL


@pytest.mark.parametrize("minority", [20, 200])
def test_healthy_canaries_rarely_fail(minority: int):
    """The chance of a false alarm at one look is at most alpha."""
    draw = random.Random(minority)
    rounds = 300
    policy = Policy(  # any difference matters here, so that only significance protects
        max_error_increase=0,
        max_first_token_ratio=1,
        max_inter_token_ratio=1,
        max_length_change=0,
        alpha=0.05,
    )
    failed = 0
    for _ in range(rounds):
        canary = {"text": answered(draw, minority, HEALTHY)}
        stable = {"text": answered(draw, minority * 5, HEALTHY)}
        failed += judge(policy, canary, stable).kind is Kind.FAIL
    deviation = math.sqrt(policy.alpha * (1 - policy.alpha) * rounds)
    assert failed <= policy.alpha * rounds + 4 * deviation  # 4 sigma: one run in 30,000


def test_a_harmless_difference_never_fails_however_certain():
    draw = random.Random(7)
    canary = {"text": answered(draw, 20_000, Behaviour(first_token=0.22))}
    stable = {"text": answered(draw, 20_000, HEALTHY)}
    assert judge(POLICY, canary, stable).kind is Kind.PASS


def test_the_median_lies_between_the_bounds_of_its_class():
    draw = random.Random(8)
    for _ in range(50):
        values = sorted(draw.lognormvariate(-2, 1) for _ in range(draw.randint(11, 99)))
        classes = [0] * (len(LATENCY_BOUNDS) + 1)
        for value in values:
            classes[_class(value)] += 1
        true = values[len(values) // 2]
        number = _class(true)
        low = 0.0 if number == 0 else LATENCY_BOUNDS[number - 1]
        assert low <= median(tuple(classes)) <= LATENCY_BOUNDS[number]
    assert median((0,) * (len(LATENCY_BOUNDS) + 1)) == 0
