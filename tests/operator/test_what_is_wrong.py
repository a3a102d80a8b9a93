"""What is wrong is told of every revision that stands, and in the same words later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from chiasm_operator.reconcile.observed import Observed
from chiasm_operator.reconcile.status import problems_of
from chiasm_operator.render import Target

MakePod = Callable[..., dict[str, Any]]
NOW, LATER = "2026-01-02T00:10:00Z", "2026-01-02T00:10:07Z"
STABLE = "v1-stable"


@pytest.fixture
def target(make_target: Callable[..., Target]) -> Target:
    return make_target(replicas=2)


def deployment(
    target: Target, revision: str, replicas: int, *conditions: dict[str, str]
) -> dict[str, Any]:
    return {
        "kind": "Deployment",
        "metadata": {"name": target.revision_name(revision)},
        "spec": {"replicas": replicas},
        "status": {"conditions": list(conditions)},
    }


def overdue(pod: dict[str, Any]) -> dict[str, Any]:
    pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    return pod


def told(target: Target, observed: Observed, now: str = NOW) -> dict[str, str]:
    return {item.reason.value: item.message for item in problems_of(target, observed, STABLE, now)}


def test_a_text_does_not_grow_older(target: Target, make_pod: MakePod) -> None:
    observed = Observed((deployment(target, target.revision, 2),), (overdue(make_pod(target)),))
    first = told(target, observed)
    assert "should have ended at 2026-01-02T00:00:00Z" in first["NodeLost"]
    assert told(target, observed, LATER) == first


def test_a_pod_that_stable_lost_is_told(target: Target, make_pod: MakePod) -> None:
    """A canary that has all that it is to have says nothing about stable."""
    children = (deployment(target, STABLE, 2), deployment(target, target.revision, 2))
    canary = [make_pod(target, f"canary-{n}", ready=True) for n in range(2)]
    stable = make_pod(target, "stable-1", ready=True, revision=STABLE)
    lost = overdue(make_pod(target, "stable-0", revision=STABLE))
    assert "NodeLost" in told(target, Observed(children, (*canary, stable, lost)))
    assert "NodeLost" not in told(target, Observed(children, (*canary, stable)))


def test_what_an_aborted_canary_lost_is_of_no_interest(target: Target, make_pod: MakePod) -> None:
    children = (deployment(target, STABLE, 2), deployment(target, target.revision, 0))
    stable = [make_pod(target, f"stable-{n}", ready=True, revision=STABLE) for n in range(2)]
    gone = overdue(make_pod(target, "canary-1"))
    assert not told(target, Observed(children, (*stable, gone)))


@pytest.mark.parametrize("revision", [STABLE, None])
def test_a_deployment_that_cannot_make_pods_is_told(revision: str | None, target: Target) -> None:
    whose = revision or target.revision
    refused = {
        "type": "ReplicaFailure", "status": "True",
        "message": 'pods "a" is forbidden: exceeded quota: team, requested: pods=1',
    }  # fmt: skip
    message = told(target, Observed((deployment(target, whose, 2, refused),)))["QuotaExceeded"]
    assert message.startswith(f"Revision {whose}: ResourceQuota 'team' has no room")


def test_the_deadline_is_the_new_revisions(target: Target) -> None:
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    assert not told(target, Observed((deployment(target, STABLE, 2, late),)))
    own = Observed((deployment(target, target.revision, 2, late),))
    assert target.revision in told(target, own)["ProgressDeadlineExceeded"]
