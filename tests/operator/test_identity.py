"""Trust on first use: the first pod of a revision decides, others must equal it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chiasm_contract.conditions import Reason, Truth
from chiasm_contract.messages import PodState
from chiasm_operator.reconcile.identity import judge
from chiasm_operator.reconcile.observed import Observed
from chiasm_operator.render import Target

MakeTarget = Callable[..., Target]
MakePod = Callable[..., dict[str, Any]]
MakeState = Callable[..., PodState]


def latched(target: Target, **fields: str) -> dict[str, Any]:
    return {
        "identity": {
            "revision": target.revision,
            "computeFingerprint": "c" * 64,
            "reprFingerprint": "d" * 64,
            "fields": fields,
        }
    }


def observed(target: Target, make_pod: MakePod, *states: PodState | None) -> Observed:
    names = [f"pod-{number}" for number in range(len(states))]
    pods = tuple(make_pod(target, name) for name in names)
    said = {name: state for name, state in zip(names, states, strict=True) if state}
    return Observed(pods=pods, states=said)


def test_nothing_reported_is_unknown(make_target: MakeTarget, make_pod: MakePod) -> None:
    target = make_target()
    verdict = judge(target, observed(target, make_pod, None))
    assert verdict.latched is None
    assert (verdict.finding.status, verdict.finding.reason) == (
        Truth.UNKNOWN,
        Reason.NOT_REPORTED,
    )


def test_the_first_report_is_latched(
    make_target: MakeTarget, make_pod: MakePod, make_state: MakeState
) -> None:
    target = make_target()
    verdict = judge(target, observed(target, make_pod, make_state(dtype="float32", heads=4)))
    assert verdict.latched == latched(target, dtype="float32", heads="4")["identity"]
    assert verdict.finding.status is Truth.TRUE


def test_a_pod_that_differs_is_named_with_its_field(
    make_target: MakeTarget, make_pod: MakePod, make_state: MakeState
) -> None:
    target = make_target()
    states = make_state(dtype="float32"), make_state(dtype="bfloat16")
    verdict = judge(target, observed(target, make_pod, *states))
    assert (verdict.finding.status, verdict.finding.reason) == (
        Truth.FALSE,
        Reason.IDENTITY_MISMATCH,
    )
    assert (
        "Pod pod-1: dtype is bfloat16, the revision's first pod reported float32"
        in verdict.finding.message
    )


def test_the_latch_outlives_its_pod(
    make_target: MakeTarget, make_pod: MakePod, make_state: MakeState
) -> None:
    first = make_target()
    target = make_target(status=latched(first, dtype="float32"))
    verdict = judge(target, observed(target, make_pod, make_state(dtype="bfloat16")))
    assert verdict.finding.status is Truth.FALSE
    assert verdict.latched == target.resource.status["identity"]


def test_another_revision_starts_anew(
    make_target: MakeTarget, make_pod: MakePod, make_state: MakeState
) -> None:
    before = make_target()
    target = make_target(status=latched(before, dtype="float32"), engine={"dtype": "bfloat16"})
    verdict = judge(target, observed(target, make_pod, make_state(dtype="bfloat16")))
    assert verdict.finding.status is Truth.TRUE
    assert verdict.latched is not None
    assert verdict.latched["revision"] == target.revision != before.revision


def test_a_refused_pod_is_never_the_one_to_trust(
    make_target: MakeTarget, make_pod: MakePod, make_state: MakeState
) -> None:
    target = make_target()
    refused = make_state(reason="IdentityMismatch", message="dtype is 'float16'.", dtype="float16")
    verdict = judge(target, observed(target, make_pod, refused))
    assert verdict.latched is None
    assert verdict.finding.status is Truth.FALSE
    assert "dtype is 'float16'" in verdict.finding.message


def test_pods_of_an_older_revision_do_not_count(
    make_target: MakeTarget, make_pod: MakePod, make_state: MakeState
) -> None:
    target = make_target()
    old = make_pod(target, "old", revision="v1-old")
    verdict = judge(target, Observed(pods=(old,), states={"old": make_state(dtype="x")}))
    assert verdict.latched is None
