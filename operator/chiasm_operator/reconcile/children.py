"""Which children to apply, which to delete, and which names are in the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chiasm_contract.conditions import Reason

from chiasm_operator import render
from chiasm_operator.reconcile.configuration import Configured
from chiasm_operator.reconcile.drift import differs, stamped
from chiasm_operator.reconcile.observed import (
    ChildKey,
    Observed,
    is_active,
    is_ready,
    key_of,
    pods_of,
    revision_of,
)
from chiasm_operator.reconcile.ownership import Owner, owner
from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.reconcile.records import kept, restarts, specs, too_old
from chiasm_operator.reconcile.rollout import Decision
from chiasm_operator.render import Record, Target, delivery, route, service, traffic
from chiasm_operator.render.autoscaler import HPA, SCALED_OBJECT
from chiasm_operator.resource import Manifest


@dataclass(frozen=True)
class ChildPlan:
    """What a pass does to the children. An empty plan means that everything is as it should be."""

    apply: tuple[Manifest, ...] = ()
    delete: tuple[ChildKey, ...] = ()
    problems: tuple[Problem, ...] = ()
    waiting: tuple[ChildKey, ...] = ()  # names that garbage collection will free


def desired(
    target: Target,
    fresh: Record,
    observed: Observed,
    decision: Decision,
    configured: Configured | None = None,
) -> tuple[Manifest, ...]:
    """Every child as it should be, ready to be applied, in the order in which that is safe.

    Revisions come before the plan that names them, the plan before the Service that follows it.
    """
    known = kept(target, fresh, observed)
    configured = configured or Configured()
    # One that only a plan names which somebody edited has nothing that it could be made from.
    standing = {name: pods for name, pods in decision.replicas.items() if name in known}
    wanted = [*render.shared(target, tuple(specs(target, known, standing).values()))]
    for revision, replicas in standing.items():
        item = known[revision]
        present = revision in (decision.stable, target.revision)
        changed = configured.restarts.get(revision)
        stamps = restarts(target, revision, observed, present=present, config=changed)
        wanted += render.of_revision(target, item.record, item.number, replicas, stamps)
    wanted.append(traffic.render(target, decision.plan, decision.rollout, configured.approvals))
    routed = route.render(target, decision.plan)
    wanted += [routed] if routed else []
    if not _older_version_serves(target, observed, decision):
        wanted.append(service.render(target, decision.stable))
    wanted += render.scaling(target)
    return tuple(stamped(manifest) for manifest in wanted)


def _older_version_serves(target: Target, observed: Observed, decision: Decision) -> bool:
    """Whether the Deployment of all revisions, as it once was, has to go on for a while."""
    legacy = observed.child("Deployment", target.name)
    ready = sum(map(is_ready, pods_of(observed, decision.stable)))
    return legacy is not None and not ready


def deployment_settled(target: Target, observed: Observed) -> bool:
    """Whether the target's Deployment says that all its pods are as it wants them."""
    live = observed.child("Deployment", target.revision_name(target.revision))
    if live is None:
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


def _prunable(live: Manifest, target: Target, observed: Observed, decision: Decision) -> bool:
    """What there may be too much of: the budget of a single pod, an autoscaler, a route or the
    Service of peers that is no longer asked for, and everything of a revision that no longer
    stands. Its record stays for a while: it is the history."""
    (kind, _), revision = key_of(live), revision_of(live)
    if kind in {"PodDisruptionBudget", HPA, SCALED_OBJECT, route.ROUTE}:
        return True
    if revision is None:
        return bool(kind == "Service" and live["metadata"]["name"] != target.name)
    standing = set(decision.replicas)
    if kind == "ControllerRevision":
        return live["metadata"]["name"] in too_old(observed, standing)
    if kind == "Deployment" and live["metadata"]["name"] != target.revision_name(revision):
        # Of a version that had one for all revisions: it serves until this one can.
        ready = sum(map(is_ready, pods_of(observed, decision.stable)))
        return ready >= target.spec.replicas
    in_use = {revision_of(pod) for pod in observed.pods if is_active(pod)}
    gone = revision not in standing and revision not in in_use
    return bool(gone and kind in {"Deployment", "ConfigMap", "Service", *delivery.KINDS})


def plan(
    target: Target, wanted: Sequence[Manifest], observed: Observed, decision: Decision
) -> ChildPlan:
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
        and _prunable(live, target, observed, decision)
    )
    return ChildPlan(tuple(apply), delete, tuple(problems), tuple(waiting))


def writes_traffic(target: Target, plan: ChildPlan, decision: Decision) -> bool:
    """Whether the traffic plan is as decided behind `plan`: nothing else has or keeps its name."""
    key = ("ConfigMap", target.traffic_name)
    renewed = key in map(key_of, plan.apply)
    return renewed or not (decision.renewed or key in plan.waiting)
