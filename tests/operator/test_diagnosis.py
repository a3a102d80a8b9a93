"""Each cause has a reason of its own and says what to do; the texts are Kubernetes 1.37's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from chiasm_contract.conditions import Reason
from chiasm_operator.reconcile.diagnosis import refusals
from chiasm_operator.reconcile.diagnosis.pods import diagnose
from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.render import Target

MakeTarget = Callable[..., Target]
MakePod = Callable[..., dict[str, Any]]

NOW = "2026-01-02T00:10:00Z"
GPU = {"device": {"type": "nvidia"}}
PREEMPTION = (
    " preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling, no new "
    "claims to deallocate."
)


def diagnosed(target: Target, pod: dict[str, Any], *events: dict[str, Any]) -> Problem:
    problem = diagnose(target, pod, None, events, NOW)
    assert problem is not None
    return problem


# --- no place ---


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        (
            "1 Insufficient nvidia.com/gpu.",
            Reason.INSUFFICIENT_GPU,
            ["No node has a free nvidia.com/gpu", "device plugin"],
        ),
        (
            "2 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint(s).",
            Reason.INSUFFICIENT_GPU,
            ["No node has a free nvidia.com/gpu", "spec.podTemplate.tolerations"],
        ),
        (
            "2 node(s) didn't match Pod's node affinity/selector, 1 Insufficient nvidia.com/gpu.",
            Reason.INSUFFICIENT_GPU,
            ["spec.podTemplate.nodeSelector"],
        ),
        (
            "3 node(s) had untolerated taint {dedicated: training}.",
            Reason.UNTOLERATED_TAINT,
            ["{dedicated: training}", "spec.podTemplate.tolerations"],
        ),
        (
            "1 node(s) had untolerated taint(s), 2 node(s) didn't match Pod's node "
            "affinity/selector.",
            Reason.NODE_MISMATCH,
            ["label a node", "spec.podTemplate.tolerations"],
        ),
        (
            "3 node(s) didn't match pod topology spread constraints.",
            Reason.NODE_MISMATCH,
            ["loosen spec.podTemplate.topologySpreadConstraints"],
        ),
        (
            "3 node(s) didn't match PersistentVolume's node affinity.",
            Reason.NODE_MISMATCH,
            ["The model's volume can be used on other nodes only"],
        ),
        (
            "pod has unbound immediate PersistentVolumeClaims.",
            Reason.CLAIM_NOT_BOUND,
            ["storage class"],
        ),
        ("3 Insufficient memory.", Reason.UNSCHEDULABLE, ["Ask for less in spec.resources"]),
        ("3 node(s) were unschedulable.", Reason.UNSCHEDULABLE, ["kubectl uncordon"]),
        ("3 node(s) had a bad day.", Reason.UNSCHEDULABLE, ["had a bad day"]),
    ],
)
def test_why_there_is_no_place(
    text: str, reason: Reason, words: list[str], make_target: MakeTarget, make_pod: MakePod
) -> None:
    target = make_target(resources=GPU)
    full = f"0/3 nodes are available: {text}{PREEMPTION}"
    condition = {"type": "PodScheduled", "status": "False", "message": full}
    problem = diagnosed(target, make_pod(target, conditions=[condition]))
    assert problem.reason is reason
    for part in ["Pod pod-1 fits on no node: 0/3 nodes are available", *words]:
        assert part in problem.message
    assert "preemption" not in problem.message.lower()


def test_a_device_claim_is_told_by_its_field(make_target: MakeTarget, make_pod: MakePod) -> None:
    target = make_target("autoscaled")
    text = "0/1 nodes are available: 1 cannot allocate all claims."
    condition = {"type": "PodScheduled", "status": "False", "message": text}
    problem = diagnosed(target, make_pod(target, conditions=[condition]))
    assert problem.reason is Reason.INSUFFICIENT_GPU
    assert "ResourceClaimTemplate 'one-small-gpu'" in problem.message
    event = {
        "reason": "FailedResourceClaimCreation",
        "message": 'PodResourceClaim device: resource claim template "one-small-gpu": '
        'resourceclaimtemplate.resource.k8s.io "one-small-gpu" not found',
    }
    pod = make_pod(target)
    assert diagnosed(target, pod, event).reason is Reason.CLAIM_NOT_FOUND
    pod["status"]["resourceClaimStatuses"] = [{"name": "device"}]
    assert diagnose(target, pod, None, [event], NOW) is None


# --- containers that end ---


def ended(
    code: int, reason: str = "Error", *, container: str = "worker", up: bool = False, **more: Any
) -> dict[str, Any]:
    """A container that ran from 00:00 to 00:05 and was restarted three times."""
    last = {
        "exitCode": code,
        "reason": reason,
        "startedAt": "2026-01-02T00:00:00Z",
        "finishedAt": "2026-01-02T00:05:00Z",
    }
    state = {"running": {}} if up else {"waiting": {"reason": "CrashLoopBackOff"}}
    lasting = {"name": container, "restartCount": 3, "started": up, "state": state}
    return lasting | {"lastState": {"terminated": last}} | more


def unhealthy(text: str, when: str, **more: Any) -> dict[str, Any]:
    where = {"fieldPath": "spec.containers{worker}"}
    return {
        "reason": "Unhealthy", "message": text, "lastTimestamp": when, "involvedObject": where
    } | more  # fmt: skip


@pytest.mark.parametrize(
    ("resources", "container", "words"),
    [
        (
            {"limits": {"memory": "2Gi"}},
            "worker",
            "needed more than its limit of 2Gi (spec.resources.limits.memory), was killed and was "
            "restarted 3 times. Raise the limit, or lower spec.engine.kvCacheBytes",
        ),
        ({}, "worker", "needed more than the memory that its node has"),
        (
            {"sidecar": {"limits": {"memory": "256Mi"}}},
            "sidecar",
            "its limit of 256Mi (spec.resources.sidecar.limits.memory), was killed and was "
            "restarted 3 times. Raise the limit, or lower spec.tiers.host.maxBytes",
        ),
    ],
)
def test_out_of_memory_names_the_limit(
    resources: dict[str, Any],
    container: str,
    words: str,
    make_target: MakeTarget,
    make_pod: MakePod,
) -> None:
    target = make_target(resources=resources)
    status = ended(137, "OOMKilled", container=container)
    where = "init_statuses" if container == "sidecar" else "statuses"
    problem = diagnosed(target, make_pod(target, **{where: [status]}))
    assert problem.reason is Reason.OUT_OF_MEMORY
    assert words in problem.message


LIVENESS = "Liveness probe failed: chiasm worker: no answer within 15 s"


@pytest.mark.parametrize(
    ("code", "event", "reason"),
    [
        (137, unhealthy(LIVENESS, "2026-01-02T00:04:59Z"), Reason.PROBE_FAILED),
        (0, unhealthy(LIVENESS, "2026-01-02T00:04:59Z"), Reason.PROBE_FAILED),
        (137, unhealthy(LIVENESS.replace("Liveness", "Startup"), "2026-01-02T00:04:59Z"),
         Reason.PROBE_FAILED),
        (1, unhealthy(LIVENESS, "2026-01-02T00:04:59Z"), Reason.CRASH_LOOP),
        (137, unhealthy(LIVENESS, "2026-01-01T23:00:00Z"), Reason.CRASH_LOOP),
        (137, unhealthy("Readiness probe failed: x", "2026-01-02T00:04:59Z"), Reason.CRASH_LOOP),
        (137, unhealthy(LIVENESS, "2026-01-02T00:06:00Z", firstTimestamp="2026-01-02T00:04:00Z"),
         Reason.PROBE_FAILED),
        (137, unhealthy(LIVENESS, "2026-01-02T00:06:00Z", firstTimestamp="2026-01-02T00:05:30Z"),
         Reason.CRASH_LOOP),
    ],
    ids=["killed", "ended well", "startup", "own fault", "an older run", "readiness", "folded",
         "a later run"],
)  # fmt: skip
def test_a_container_that_its_probe_killed(
    code: int,
    event: dict[str, Any],
    reason: Reason,
    make_target: MakeTarget,
    make_pod: MakePod,
) -> None:
    target = make_target()
    problem = diagnosed(target, make_pod(target, statuses=[ended(code)]), event)
    assert problem.reason is reason
    if reason is Reason.PROBE_FAILED:
        assert "did not answer, was restarted 3 times" in problem.message
        assert "kubectl logs pod-1 -c worker --previous" in problem.message


@pytest.mark.parametrize("ready", [True, False])
def test_a_pod_that_flaps_is_told_while_it_is_up(
    ready: bool, make_target: MakeTarget, make_pod: MakePod
) -> None:
    target = make_target()
    pod = make_pod(target, ready=ready, statuses=[ended(1, up=True)])
    assert diagnosed(target, pod).reason is Reason.CRASH_LOOP


@pytest.mark.parametrize(
    "status",
    [
        ended(1, up=True, restartCount=1),
        ended(1, up=True, lastState={"terminated": {
            "exitCode": 1, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-02T00:05:00Z"
        }}),
        ended(1, up=True, lastState={"terminated": {
            "exitCode": 1, "startedAt": "2026-01-01T23:50:00Z", "finishedAt": "2026-01-01T23:55:00Z"
        }}),
    ],
    ids=["once", "after a day", "long ago"],
)  # fmt: skip
def test_a_pod_that_recovered_has_no_problem(
    status: dict[str, Any], make_target: MakeTarget, make_pod: MakePod
) -> None:
    target = make_target()
    assert diagnose(target, make_pod(target, ready=True, statuses=[status]), None, (), NOW) is None


@pytest.mark.parametrize(
    ("text", "count", "when", "told"),
    [
        ("context deadline exceeded", 9, "2026-01-02T00:09:50Z", True),
        ("HTTP probe failed with statuscode: 503", 9, "2026-01-02T00:09:50Z", False),
        ("context deadline exceeded", 2, "2026-01-02T00:09:50Z", False),
        ("context deadline exceeded", 9, "2026-01-02T00:01:00Z", False),
    ],
    ids=["silent", "starting", "seldom", "over"],
)
def test_a_sidecar_that_answers_nobody(
    text: str, count: int, when: str, told: bool, make_target: MakeTarget, make_pod: MakePod
) -> None:
    target = make_target()
    where = {"fieldPath": "spec.initContainers{sidecar}"}
    event = unhealthy(f"Readiness probe failed: {text}", when, count=count, involvedObject=where)
    problem = diagnose(target, make_pod(target), None, [event], NOW)
    assert (problem is not None) is told
    assert problem is None or problem.reason is Reason.PROBE_FAILED


@pytest.mark.parametrize(
    ("count", "words"), [(0, "was not restarted yet"), (1, "was restarted once"), (2, "2 times")]
)
def test_restarts_are_counted_in_words(
    count: int, words: str, make_target: MakeTarget, make_pod: MakePod
) -> None:
    target = make_target()
    pod = make_pod(target, statuses=[ended(1, restartCount=count)])
    problem = diagnose(target, pod, None, (), NOW)
    assert problem is not None
    assert words in problem.message


# --- refusals ---


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        (
            'pods "a-1" is forbidden: exceeded quota: team, requested: '
            "requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=4, limited: "
            "requests.nvidia.com/gpu=4",
            Reason.QUOTA_EXCEEDED,
            "ResourceQuota 'team' has no room: requested: requests.nvidia.com/gpu=1, used",
        ),
        (
            'pods "a-1" is forbidden: failed quota: team: must specify limits.memory for: worker',
            Reason.QUOTA_EXCEEDED,
            "ResourceQuota 'team' wants every container to say more: must specify limits.memory",
        ),
        (
            'admission webhook "pods.policy.example.com" denied the request: no cost centre',
            Reason.PODS_REFUSED_BY_WEBHOOK,
            "Admission webhook 'pods.policy.example.com' refuses the pods: no cost centre.",
        ),
        (
            'Internal error occurred: failed calling webhook "pods.policy.example.com": failed to '
            'call webhook: Post "https://policy.policy.svc:443/": service "policy" not found',
            Reason.PODS_REFUSED_BY_WEBHOOK,
            "No pod can be created while admission webhook 'pods.policy.example.com' does not",
        ),
        (
            "pods is forbidden: ValidatingAdmissionPolicy 'images' with binding 'all' denied "
            "request: only our registry",
            Reason.PODS_REFUSED,
            "ValidatingAdmissionPolicy 'images' refuses the pods: with binding 'all' denied "
            "request: only our registry.",
        ),
        (
            'pods "a-1" is forbidden: no PriorityClass with name serving was found',
            Reason.PODS_REFUSED,
            "no PriorityClass with name serving",
        ),
    ],
)
def test_why_pods_cannot_be_created(text: str, reason: Reason, words: str) -> None:
    problem = refusals.pods(text)
    assert problem.reason is reason
    assert words in problem.message


def test_a_field_that_cannot_change_says_what_to_delete() -> None:
    text = 'Deployment.apps "a" is invalid: spec.selector: Invalid value: {}: field is immutable'
    problem = refusals.child("Deployment", "a", 422, text)
    assert problem.reason is Reason.IMMUTABLE_FIELD
    assert "kubectl delete deployment a" in problem.message


def test_a_child_may_exceed_a_quota_too() -> None:
    text = (
        'services "a" is forbidden: exceeded quota: team, requested: services=1, used: services=1'
    )
    problem = refusals.child("Service", "a", 403, text)
    assert problem.reason is Reason.QUOTA_EXCEEDED
    assert problem.message.startswith("Service 'a': ResourceQuota 'team'")
