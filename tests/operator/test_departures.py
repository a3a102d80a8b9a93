"""Pods that are taken away: told in whole sentences, and for how long."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from chiasm_contract.conditions import Reason
from chiasm_operator.reconcile.diagnosis import departures
from chiasm_operator.reconcile.diagnosis.pods import diagnose
from chiasm_operator.render import Target

MakeTarget = Callable[..., Target]
MakePod = Callable[..., dict[str, Any]]

NOW = "2026-01-02T00:10:00Z"
GPU = {"device": {"type": "nvidia"}}


def gone(make_pod: MakePod, target: Target, **status: Any) -> dict[str, Any]:
    pod = make_pod(target)
    pod["spec"]["nodeName"] = "gpu-1"
    pod["status"] |= {"startTime": "2026-01-02T00:05:00Z", **status}
    return pod


def test_an_evicted_pod_is_told_with_the_kubelets_words(
    make_target: MakeTarget, make_pod: MakePod
) -> None:
    text = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 84Mi. "
    target = make_target()
    pod = gone(make_pod, target, phase="Failed", reason="Evicted", message=text)
    (problem,) = departures.departed([pod], NOW)
    assert problem.reason is Reason.EVICTED
    assert "Pod pod-1 on node gpu-1 was evicted: The node was low on resource" in problem.message
    assert "spec.resources.requests" in problem.message
    assert not list(departures.departed([pod], "2026-01-03T00:00:00Z"))


def test_a_pod_that_a_node_refuses_is_told(make_target: MakeTarget, make_pod: MakePod) -> None:
    text = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices"
    target = make_target(resources=GPU)
    pod = gone(make_pod, target, phase="Failed", reason="UnexpectedAdmissionError", message=text)
    (problem,) = departures.departed([pod], NOW)
    assert problem.reason is Reason.POD_FAILED
    assert "no healthy devices present" in problem.message


@pytest.mark.parametrize("reason", ["Evicted", "Terminated"])
def test_a_pod_that_failed_without_a_word_is_told_in_whole_sentences(
    reason: str, make_target: MakeTarget, make_pod: MakePod
) -> None:
    pod = gone(make_pod, make_target(), phase="Failed", reason=reason)
    (problem,) = departures.departed([pod], NOW)
    assert ": ." not in problem.message
    assert not re.search(r"[ .]\.", problem.message)


def test_a_pod_that_cannot_end_is_on_a_lost_node(
    make_target: MakeTarget, make_pod: MakePod
) -> None:
    pod = gone(make_pod, make_target())
    pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    (problem,) = departures.departed([pod], NOW)
    assert problem.reason is Reason.NODE_LOST
    assert "on node gpu-1 should have ended at 2026-01-02T00:00:00Z" in problem.message
    pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:09:50Z"
    assert not list(departures.departed([pod], NOW))


def test_a_pod_on_a_node_that_is_silent(make_target: MakeTarget, make_pod: MakePod) -> None:
    target = make_target()
    pod = gone(make_pod, target, phase="Running")
    pod["status"]["conditions"] = [
        {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T00:08:00Z"}
    ]
    event = {
        "reason": "NodeNotReady",
        "message": "Node is not ready",
        "lastTimestamp": "2026-01-02T00:08:00Z",
    }
    problem = diagnose(target, pod, None, [event], NOW)
    assert problem is not None
    assert problem.reason is Reason.NODE_LOST
    assert "Pod pod-1 on node gpu-1 cannot be reached" in problem.message
    before = event | {"lastTimestamp": "2026-01-02T00:01:00Z"}
    assert diagnose(target, pod, None, [before], NOW) is None
