"""The status as people and tools read it, and the events on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from chiasm_contract.api.status import Status
from chiasm_contract.conditions import Reason
from chiasm_contract.messages import PodState
from chiasm_operator.reconcile import children, status
from chiasm_operator.reconcile.observed import Observed
from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.reconcile.rollout import Asked, decide, look
from chiasm_operator.render import Target
from chiasm_operator.render.revision import record_of
from chiasm_operator.render.traffic import address

MakeTarget = Callable[..., Target]
MakeObserved = Callable[..., Observed]
MakePod = Callable[..., dict[str, Any]]
MakeState = Callable[..., PodState]
NOW = "2026-01-02T00:00:00Z"
LATER = "2026-01-03T00:00:00Z"


def outcome(
    target: Target, observed: Observed, *refusals: Problem, now: str = NOW
) -> status.Outcome:
    decision = decide(Asked.of(target), look(target, observed), partial(address, target), 0)
    wanted = children.desired(target, record_of(target), observed, decision)
    plan = children.plan(target, wanted, observed, decision)
    return status.outcome(target, observed, decision, plan, refusals, now)


def conditions(done: status.Outcome) -> dict[str, str]:
    Status.model_validate(done.status)
    return {
        item["type"]: f"{item['status']} {item['reason']}" for item in done.status["conditions"]
    }


@pytest.fixture
def healthy(
    make_target: MakeTarget,
    make_observed: MakeObserved,
    make_pod: MakePod,
    make_state: MakeState,
) -> tuple[Target, Observed]:
    target = make_target()
    pods = [make_pod(target, name, ready=True) for name in ("pod-1", "pod-2")]
    states = {name: make_state(dtype="float32") for name in ("pod-1", "pod-2")}
    return target, make_observed(target, *pods, states=states)


def test_all_is_well(healthy: tuple[Target, Observed]) -> None:
    done = outcome(*healthy)
    assert conditions(done) == {
        "Ready": "True AllReplicasReady",
        "Serving": "True PodsReady",
        "Progressing": "False RolloutComplete",
        "Degraded": "False AsExpected",
        "IdentityVerified": "True IdentityConfirmed",
        "Paused": "False NotPaused",
        "RolloutHealthy": "True AsExpected",
        "TrafficSynced": "True PlanAcknowledged",
        "AnalysisHealthy": "Unknown NoAnalysis",
    }
    assert done.settled
    said = {key: done.status[key] for key in ("phase", "url", "model", "ready", "replicas")}
    assert said == {
        "phase": "Healthy",
        "url": "http://shelf-reader.vision.svc:8000",
        "model": "shelf-reader",
        "ready": "2/2",
        "replicas": 2,
    }
    assert done.status["observedGeneration"] == 1
    assert done.status["identity"]["computeFingerprint"] == "c" * 64


def test_the_same_look_gives_the_same_status(healthy: tuple[Target, Observed]) -> None:
    target, observed = healthy
    first = outcome(target, observed)
    again = replace(target, resource=replace(target.resource, status=first.status))
    second = outcome(again, observed, now=LATER)
    assert json.dumps(second.status) == json.dumps(first.status)
    assert second.events == ()


def test_the_generation_is_the_resources_own(healthy: tuple[Target, Observed]) -> None:
    """Of a child it says whether the child was looked at (kserve #6081)."""
    target, observed = healthy
    for number, child in enumerate(observed.children):
        child["metadata"]["generation"] = 20 + number
        if "status" in child:
            child["status"]["observedGeneration"] = 20 + number
    done = outcome(replace(target, resource=replace(target.resource, generation=7)), observed)
    assert done.status["observedGeneration"] == 7
    assert {item["observedGeneration"] for item in done.status["conditions"]} == {7}
    assert conditions(done)["Ready"] == "True AllReplicasReady"


def test_a_new_resource_is_progressing(make_target: MakeTarget) -> None:
    done = outcome(make_target(), Observed())
    found = conditions(done)
    assert found["Ready"] == "False RolloutInProgress"
    assert found["Serving"] == "False NoReadyPods"
    assert found["IdentityVerified"] == "Unknown NotReported"
    assert done.status["phase"] == "Progressing"
    assert not done.settled
    assert [event.reason for event in done.events] == [Reason.ROLLOUT_IN_PROGRESS]


def test_old_pods_serve_during_a_rollout(make_target: MakeTarget, make_pod: MakePod) -> None:
    target = make_target()
    done = outcome(target, Observed(pods=(make_pod(target, revision="v1-old", ready=True),)))
    found = conditions(done)
    assert found["Serving"] == "True PodsReady"
    assert found["Ready"] == "False RolloutInProgress"
    assert (done.status["replicas"], done.status["updatedReplicas"]) == (1, 0)
    assert done.status["ready"] == "0/2"


def test_a_lost_pod_is_no_rollout(healthy: tuple[Target, Observed], make_pod: MakePod) -> None:
    target, observed = healthy
    starting = make_pod(target, "pod-3")
    done = outcome(target, replace(observed, pods=(observed.pods[0], starting)))
    found = conditions(done)
    assert found["Ready"] == "False ReplicasNotReady"
    assert found["Serving"] == "True PodsReady"
    assert found["Progressing"] == "False RolloutComplete"
    assert done.status["phase"] == "Progressing"


def test_scaled_to_zero_is_paused(make_target: MakeTarget, make_observed: MakeObserved) -> None:
    target = make_target(replicas=0)
    done = outcome(target, make_observed(target))
    found = conditions(done)
    assert found["Ready"] == "False ScaledToZero"
    assert found["Serving"] == "False ScaledToZero"
    assert done.status["phase"] == "Paused"
    assert done.settled
    assert done.status["ready"] == "0/0"


def test_a_pods_problem_is_the_reason(
    make_target: MakeTarget, make_observed: MakeObserved, make_pod: MakePod
) -> None:
    target = make_target()
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    pod = make_pod(target, statuses=[{"name": "worker", "state": waiting}])
    done = outcome(target, make_observed(target, pod))
    found = conditions(done)
    assert found["Ready"] == "False ImagePullFailed"
    assert found["Degraded"] == "True ImagePullFailed"
    assert done.status["phase"] == "Degraded"
    (event,) = [event for event in done.events if event.warning]
    assert "example.com/worker:1" in event.message


def test_a_pod_that_flaps_never_makes_it_ready(
    healthy: tuple[Target, Observed], make_pod: MakePod
) -> None:
    target, observed = healthy
    terminated = {
        "exitCode": 1,
        "startedAt": "2026-01-01T23:55:00Z",
        "finishedAt": "2026-01-01T23:56:00Z",
    }
    worker = {
        "name": "worker",
        "started": True,
        "restartCount": 7,
        "state": {"running": {}},
        "lastState": {"terminated": terminated},
    }
    flapping = make_pod(target, "pod-1", ready=True, statuses=[worker])
    seen = replace(observed, pods=(flapping, observed.pods[1]))
    done = outcome(target, seen)
    found = conditions(done)
    assert found["Ready"] == "False CrashLoop"
    assert found["Degraded"] == "True CrashLoop"
    assert found["Serving"] == "True PodsReady"
    assert not done.settled, "it is looked at again, for time alone ends this"
    assert conditions(outcome(target, seen, now="2026-01-02T00:06:01Z"))["Ready"] == (
        "True AllReplicasReady"
    )


def test_an_eviction_counts_while_pods_are_missing(
    healthy: tuple[Target, Observed], make_pod: MakePod
) -> None:
    target, observed = healthy
    evicted = make_pod(target, "pod-0")
    evicted["status"] |= {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "The node was low on resource: memory.",
        "startTime": "2026-01-01T23:59:00Z",
    }
    replaced = replace(observed, pods=(*observed.pods, evicted))
    assert conditions(outcome(target, replaced))["Ready"] == "True AllReplicasReady"
    missing = replace(observed, pods=(observed.pods[0], evicted))
    assert conditions(outcome(target, missing))["Degraded"] == "True Evicted"


def test_a_refusal_names_the_child(make_target: MakeTarget) -> None:
    refused = Problem(Reason.CHILD_REFUSED, "Deployment 'x' was refused: bad affinity")
    done = outcome(make_target(), Observed(), refused)
    assert conditions(done)["Degraded"] == "True ChildRefused"


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (
            {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"},
            "PodsRefused",
        ),
        (
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"},
            "ProgressDeadlineExceeded",
        ),
    ],
)
def test_the_deployments_word_counts(
    condition: dict[str, str], reason: str, make_target: MakeTarget, make_observed: MakeObserved
) -> None:
    target = make_target()
    observed = make_observed(target)
    deployment: Any = observed.child("Deployment", target.revision_name(target.revision))
    deployment["status"]["conditions"] = [condition]
    found = conditions(outcome(target, observed))
    assert found["Degraded"] == f"True {reason}"
    gave_up = reason == "ProgressDeadlineExceeded"
    assert found["Progressing"] == (f"False {reason}" if gave_up else "True RolloutInProgress")


def test_identity_differences_degrade(
    healthy: tuple[Target, Observed], make_state: MakeState
) -> None:
    target, observed = healthy
    states = {"pod-1": make_state(dtype="float32"), "pod-2": make_state(dtype="bfloat16")}
    done = outcome(target, replace(observed, states=states))
    found = conditions(done)
    assert found["IdentityVerified"] == "False IdentityMismatch"
    assert found["Degraded"] == "True IdentityMismatch"
    assert found["Ready"] == "False IdentityMismatch"
    assert len([event for event in done.events if event.warning]) == 1


def test_waiting_for_garbage_collection_is_said(
    make_target: MakeTarget, make_observed: MakeObserved
) -> None:
    target = make_target()
    observed = make_observed(target)
    service: Any = observed.child("Service", "shelf-reader")
    service["metadata"]["ownerReferences"][0]["uid"] = "of-the-deleted-one"
    found = conditions(outcome(target, observed))
    assert found["Ready"] == "False WaitingForCleanup"
    assert found["Degraded"] == "False AsExpected"


def test_an_invalid_spec_leaves_pods_and_says_so(healthy: tuple[Target, Observed]) -> None:
    target, observed = healthy
    before = outcome(target, observed).status
    resource = replace(target.resource, status=before, generation=2)
    done = status.invalid(resource, "spec.engine.turbo: Extra inputs are not permitted.", NOW)
    found = conditions(done)
    assert found["Ready"] == "False InvalidSpec"
    assert found["Degraded"] == "True InvalidSpec"
    assert found["Serving"] == "True PodsReady"
    assert done.status["phase"] == "Degraded"
    assert done.status["observedGeneration"] == 2
    assert [event.reason for event in done.events] == [Reason.INVALID_SPEC]


def test_what_the_operator_fails_at_is_unknown(healthy: tuple[Target, Observed]) -> None:
    target, observed = healthy
    resource = replace(target.resource, status=outcome(target, observed).status, generation=2)
    done = status.failed(resource, "The operator fails.", NOW)
    found = conditions(done)
    assert found["Ready"] == "Unknown OperatorFailed"
    assert found["Degraded"] == "True OperatorFailed"
    assert found["Serving"] == "True PodsReady"
    assert [event.reason for event in done.events] == [Reason.OPERATOR_FAILED]
    again = replace(resource, status=done.status)
    assert status.failed(again, "The operator fails.", NOW).events == ()
    assert conditions(outcome(replace(target, resource=again), observed))["Ready"].startswith(
        "True"
    )


def test_pods_that_serve_without_a_tier_are_ready_and_degraded(
    healthy: tuple[Target, Observed],
) -> None:
    target, observed = healthy
    faults = {"tier_faults": ("peers: no NIXL; use another image",)}
    states = {name: said.model_copy(update=faults) for name, said in observed.states.items()}
    done = outcome(target, replace(observed, states=states))
    found = conditions(done)
    assert found["Ready"] == "True AllReplicasReady"
    assert found["Degraded"] == "True TierUnavailable"
    assert done.status["phase"] == "Degraded"
    assert done.settled, "nothing is under way that should be watched closely"
    (event,) = [event for event in done.events if event.warning]
    assert event.message == (
        "Pod pod-1 serves without a tier of spec.tiers and tries again: peers: no NIXL; use "
        "another image (and 1 more)"
    )


def test_what_keeps_pods_from_serving_is_told_before_what_they_do_without(
    healthy: tuple[Target, Observed], make_state: MakeState
) -> None:
    target, observed = healthy
    without = make_state(dtype="float32", tier_faults=("peers: no NIXL",))
    refused = Problem(Reason.CHILD_REFUSED, "Quota.")
    states = dict.fromkeys(observed.states, without)
    done = outcome(target, replace(observed, states=states), refused)
    assert conditions(done)["Ready"] == "False ChildRefused"
    assert conditions(done)["Degraded"] == "True ChildRefused"
    assert not done.settled
