"""What happened to pods that were taken away: evicted, failed as a whole, on a node that is gone.

Told only while pods are missing: a pod that was evicted yesterday and replaced is of no interest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chiasm_contract.conditions import Reason

from chiasm_operator.reconcile.diagnosis.endings import RECOVERY_SECONDS
from chiasm_operator.reconcile.diagnosis.moments import is_recent, seconds_between
from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.resource import Manifest

# A pod may outlive its deletion by a little; a node that works does not need this long.
OVERDUE_SECONDS = 30


def departed(pods: Sequence[Manifest], now: str) -> Iterator[Problem]:
    """Of pods that no longer count: those that failed lately, and those that cannot end."""
    for pod in pods:
        status = pod.get("status", {})
        if status.get("phase") == "Failed" and is_recent(_when(pod), now, RECOVERY_SECONDS):
            yield _failed(pod)
        due = pod["metadata"].get("deletionTimestamp")
        overdue_seconds = seconds_between(due, now)
        if overdue_seconds is not None and overdue_seconds > OVERDUE_SECONDS:
            # Not for how long: a text that grows older would be a new status at each pass.
            yield Problem(
                Reason.NODE_LOST,
                f"{_place(pod)} should have ended at {due}, and its node does not say that it "
                "has: bring the node back, or delete it (kubectl delete node).",
            )


def on_lost_node(pod: Manifest, events: Sequence[Manifest]) -> Iterator[Problem]:
    """Of a pod whose node stopped reporting, until Kubernetes takes the pod away."""
    ready = _condition(pod, "Ready")
    for event in events:
        since, when = ready.get("lastTransitionTime") or "", event.get("lastTimestamp") or ""
        if event.get("reason") == "NodeNotReady" and since <= when:
            yield Problem(
                Reason.NODE_LOST,
                f"{_place(pod)} cannot be reached: the node no longer reports. Kubernetes replaces "
                "the pod after its toleration, 5 minutes unless spec.podTemplate says otherwise; "
                "bring the node back, or delete it (kubectl delete node).",
            )


def _condition(pod: Manifest, kind: str) -> Manifest:
    conditions: Sequence[Manifest] = pod.get("status", {}).get("conditions", ())
    return next((item for item in conditions if item["type"] == kind), {})


def _place(pod: Manifest) -> str:
    return f"Pod {pod['metadata']['name']} on node {pod['spec'].get('nodeName', '?')}"


def _when(pod: Manifest) -> str | None:
    moment: str | None = (
        _condition(pod, "DisruptionTarget").get("lastTransitionTime")
        or _condition(pod, "Ready").get("lastTransitionTime")
        or pod.get("status", {}).get("startTime")
    )
    return moment


def _failed(pod: Manifest) -> Problem:
    status = pod["status"]
    reason, text = status.get("reason", "Failed"), status.get("message", "").strip(" .")
    why = f": {text}." if text else "."
    if reason == "Evicted":
        return Problem(
            Reason.EVICTED,
            f"{_place(pod)} was evicted{why} Give the pods requests as large as what they use "
            "(spec.resources.requests, also ephemeral-storage), or nodes with more of it.",
        )
    return Problem(
        Reason.POD_FAILED,
        f"{_place(pod)} failed as a whole ({reason}){why} It is replaced; when that goes on, "
        "look at the node (kubectl describe node).",
    )
