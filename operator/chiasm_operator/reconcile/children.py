"""Which children to apply, which to delete, and which names are in the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chiasm_contract.conditions import Reason

from chiasm_operator import render
from chiasm_operator.reconcile.drift import differs, stamped
from chiasm_operator.reconcile.observed import (
    ChildKey,
    Observed,
    is_active,
    key_of,
    revision_of,
)
from chiasm_operator.reconcile.ownership import Owner, owner
from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.render import Target
from chiasm_operator.render.autoscaler import HPA, SCALED_OBJECT
from chiasm_operator.resource import Manifest


@dataclass(frozen=True)
class ChildPlan:
    """What a pass does to the children. An empty plan means that everything is as it should be."""

    apply: tuple[Manifest, ...] = ()
    delete: tuple[ChildKey, ...] = ()
    problems: tuple[Problem, ...] = ()
    waiting: tuple[ChildKey, ...] = ()  # names that garbage collection will free


def desired(target: Target) -> tuple[Manifest, ...]:
    """Every child as it should be, ready to be applied.

    Raises: InvalidSpec when the spec holds a value that no part would accept.
    """
    return tuple(stamped(manifest) for manifest in render.children(target))


def rollout_complete(target: Target, observed: Observed) -> bool:
    """Whether the Deployment says that all pods are of the target's revision and available."""
    live = observed.child("Deployment", target.name)
    if live is None or revision_of(live) != target.revision:
        return False
    status = live.get("status", {})
    if status.get("observedGeneration") != live["metadata"].get("generation"):
        return False
    finished = any(
        item["type"] == "Progressing" and item.get("reason") == "NewReplicaSetAvailable"
        for item in status.get("conditions", ())
    )
    counts = {status.get(field, 0) for field in ("replicas", "updatedReplicas")}
    return finished and counts == {live["spec"]["replicas"]}


def _prunable(live: Manifest, target: Target, observed: Observed) -> bool:
    """Only of these is there ever one too many: the budget of a single pod, an autoscaler or the
    Service of peers that is no longer asked for, and the ConfigMap of an older revision, which
    stays while a pod of that revision may still be (re)started."""
    if live["kind"] != "ConfigMap":
        return live["kind"] in {"PodDisruptionBudget", "Service", HPA, SCALED_OBJECT}
    in_use = {revision_of(pod) for pod in observed.pods if is_active(pod)}
    return revision_of(live) not in in_use and rollout_complete(target, observed)


def plan(target: Target, wanted: Sequence[Manifest], observed: Observed) -> ChildPlan:
    """What to do about the children, given what is there."""
    apply: list[Manifest] = []
    waiting: list[ChildKey] = []
    problems: list[Problem] = []
    for manifest in wanted:
        kind, name = key = key_of(manifest)
        live = observed.child(kind, name)
        if live is None:
            apply.append(manifest)
            continue
        whose = owner(live, target.resource)
        if whose is Owner.FOREIGN:
            problems.append(
                Problem(
                    Reason.NAME_TAKEN,
                    f"{kind} {name!r} exists and belongs to somebody else; delete it or give this "
                    "resource another name.",
                )
            )
        elif whose is Owner.LEFTOVER or "deletionTimestamp" in live["metadata"]:
            waiting.append(key)
        elif differs(manifest, live):
            apply.append(manifest)
    keys = {key_of(manifest) for manifest in wanted}
    delete = tuple(
        key_of(live)
        for live in observed.children
        if key_of(live) not in keys
        and owner(live, target.resource) is Owner.OURS
        and "deletionTimestamp" not in live["metadata"]
        and _prunable(live, target, observed)
    )
    return ChildPlan(tuple(apply), delete, tuple(problems), tuple(waiting))
