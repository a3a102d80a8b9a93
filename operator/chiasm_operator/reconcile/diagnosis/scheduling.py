"""Why the scheduler finds no place for a pod, from its own sentence.

The sentence counts nodes by the first thing that each lacks, so several causes may stand in it. The
nearest to a place leads (a node that only lacks a GPU is nearer than one that is not meant for the
pod), and the remedy of each cause is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from chiasm_contract.conditions import Reason

from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.render import Target
from chiasm_operator.resource import Manifest

_MISSING_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
# Only what devices are counted by has a domain in its name.
_DEVICE = re.compile(r"Insufficient (\S+/[^\s,.]+)")


@dataclass(frozen=True)
class _Cause:
    """Words of the scheduler, what they mean and what to do."""

    pattern: re.Pattern[str]
    reason: Reason
    remedy: str


_CLAIM = _Cause(
    re.compile(
        r"unbound immediate PersistentVolumeClaims|available persistent volumes to bind"
        r"|bound to non-existent p|persistentvolumeclaim \S+ is being deleted"
    ),
    Reason.CLAIM_NOT_BOUND,
    "The claim of spec.model.source.path has no volume yet: see kubectl describe pvc, and whether "
    "its storage class exists and can make one.",
)
_VOLUME_ELSEWHERE = _Cause(
    re.compile(
        r"PersistentVolume's node affinity|volume node affinity conflict|available volume zone"
    ),
    Reason.NODE_MISMATCH,
    "The model's volume can be used on other nodes only; let pods go there, or use a volume that "
    "all nodes reach.",
)
_SPREAD = _Cause(
    re.compile(r"topology spread constraints|affinity rules"),
    Reason.NODE_MISMATCH,
    "Pods may not lie beside each other there: loosen spec.podTemplate.topologySpreadConstraints "
    "or affinity, or add nodes.",
)
_AMOUNT = _Cause(
    re.compile(r"Insufficient (?:cpu|memory|ephemeral-storage)|Too many pods"),
    Reason.UNSCHEDULABLE,
    "Ask for less in spec.resources, or add nodes.",
)
_MISMATCH = _Cause(
    re.compile(r"node affinity/selector"),
    Reason.NODE_MISMATCH,
    "No such node is labelled as spec.podTemplate.nodeSelector and affinity ask: correct them, or "
    "label a node.",
)
_TAINT = _Cause(
    re.compile(r"untolerated taint"),
    Reason.UNTOLERATED_TAINT,
    "Nodes with a taint were left out: if pods are meant for them, name it in "
    "spec.podTemplate.tolerations (kubectl describe node shows Taints).",
)
_CORDONED = _Cause(
    re.compile(r"were unschedulable"),
    Reason.UNSCHEDULABLE,
    "Nodes are cordoned: kubectl uncordon NODE once they may be used.",
)


def _gpu(pod: Manifest, seen: str) -> Iterator[_Cause]:
    """Of the pod's one device, counted or claimed."""
    if short := _DEVICE.search(seen):
        yield _Cause(
            _DEVICE,
            Reason.INSUFFICIENT_GPU,
            f"No node has a free {short[1]}: add GPU nodes or free one, lower spec.replicas, or "
            "see whether the device plugin runs there (kubectl describe node, Allocatable).",
        )
    for claim in pod["spec"].get("resourceClaims", ()):
        yield _Cause(
            re.compile("cannot allocate all claims"),
            Reason.INSUFFICIENT_GPU,
            "No node has a free device as ResourceClaimTemplate "
            f"{claim.get('resourceClaimTemplateName', '?')!r} asks: free one, add "
            "nodes, or see whether the DRA driver runs there (kubectl get resourceslices).",
        )


def unscheduled(target: Target, pod: Manifest) -> Iterator[Problem]:
    """What the scheduler says of a pod that has no node."""
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield _problem(target, pod, condition.get("message", "no reason given"))


def _problem(target: Target, pod: Manifest, text: str) -> Problem:
    if missing := _MISSING_CLAIM.search(text):
        return Problem(
            Reason.CLAIM_NOT_FOUND,
            f"PersistentVolumeClaim {missing[1]!r} (spec.model.source.path.claimName) does not "
            f"exist in namespace {target.resource.namespace!r}; create it or name another.",
        )
    # What nodes a pod that preempts would leave unchanged is of no use to a person.
    seen = text.partition(" preemption:")[0].rstrip(" .")
    order = (
        _CLAIM,
        _VOLUME_ELSEWHERE,
        *_gpu(pod, seen),
        _AMOUNT,
        _SPREAD,
        _MISMATCH,
        _TAINT,
        _CORDONED,
    )
    causes = [cause for cause in order if cause.pattern.search(seen)]
    reason = causes[0].reason if causes else Reason.UNSCHEDULABLE
    remedies = " ".join(cause.remedy for cause in causes)
    name = pod["metadata"]["name"]
    return Problem(reason, f"Pod {name} fits on no node: {seen}. {remedies}".rstrip())
