"""The status to write and the events to post, from what was seen and done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chiasm_contract import names
from chiasm_contract.conditions import (
    Condition,
    ConditionType,
    Finding,
    Phase,
    Reason,
    Truth,
    merge,
    transitions,
)

from chiasm_operator.reconcile import autoscaling, namespaces, routing
from chiasm_operator.reconcile.children import ChildPlan, deployment_settled
from chiasm_operator.reconcile.configuration import Configured
from chiasm_operator.reconcile.diagnosis import departures, refusals
from chiasm_operator.reconcile.diagnosis.pods import diagnose, lacking
from chiasm_operator.reconcile.identity import judge
from chiasm_operator.reconcile.observed import (
    Observed,
    is_active,
    is_ready,
    key_of,
    pods_of,
    revision_of,
)
from chiasm_operator.reconcile.problems import Event, Problem
from chiasm_operator.reconcile.rollout import Asked, Decision, said
from chiasm_operator.render import Target
from chiasm_operator.render.autoscaler import HPA, SCALED_OBJECT
from chiasm_operator.render.route import ROUTE
from chiasm_operator.render.service import url
from chiasm_operator.resource import Resource

_CONFIG_FAULTS = {
    Reason.CONFIG_UNAVAILABLE,
    Reason.CONFIG_NOT_PROVED,
    Reason.LEASE_TOO_SHORT,
    Reason.LEASE_EXPIRING,
}
_ANNOUNCED = {Reason.ALL_REPLICAS_READY, Reason.IDENTITY_CONFIRMED, Reason.SCALED_TO_ZERO}


@dataclass(frozen=True)
class Outcome:
    """What a pass says, and whether the next one should come soon."""

    status: dict[str, Any]
    events: tuple[Event, ...]
    settled: bool


@dataclass(frozen=True)
class _Counts:
    desired: int
    active: int
    updated: int
    ready_updated: int
    ready: int


def _counts(target: Target, observed: Observed) -> _Counts:
    active = [pod for pod in observed.pods if is_active(pod)]
    updated = pods_of(observed, target.revision)
    return _Counts(
        desired=target.spec.replicas,
        active=len(active),
        updated=len(updated),
        ready_updated=sum(map(is_ready, updated)),
        ready=sum(map(is_ready, active)),
    )


def _deployment_problems(target: Target, observed: Observed, revision: str) -> Iterator[Problem]:
    live = observed.child("Deployment", target.revision_name(revision)) or {}
    for item in live.get("status", {}).get("conditions", ()):
        if item["type"] == "ReplicaFailure" and item["status"] == "True":
            refused = refusals.pods(item.get("message", ""))
            yield replace(refused, message=f"Revision {revision}: {refused.message}")
        late = item["type"] == "Progressing" and item.get("reason") == "ProgressDeadlineExceeded"
        if late and revision == target.revision:
            seconds = target.spec.rollout.progress_deadline_seconds
            yield Problem(
                Reason.PROGRESS_DEADLINE_EXCEEDED,
                f"Revision {revision} made no progress for {seconds} s "
                "(spec.rollout.progressDeadlineSeconds).",
            )


def _lacks_pods(target: Target, observed: Observed, revision: str) -> bool:
    live = observed.child("Deployment", target.revision_name(revision)) or {}
    wanted: int = live.get("spec", {}).get("replicas", 0)
    return sum(map(is_ready, pods_of(observed, revision))) < wanted


def problems_of(target: Target, observed: Observed, stable: str, now: str) -> tuple[Problem, ...]:
    """Everything wrong with what runs, the most telling first."""
    found: list[Problem] = []
    without: list[Problem] = []
    revisions = tuple(dict.fromkeys((target.revision, stable)))
    for pod in (pod for revision in revisions for pod in pods_of(observed, revision)):
        name = pod["metadata"]["name"]
        events = observed.pod_events.get(name, ())
        problem = diagnose(target, pod, observed.states.get(name), events, now)
        if problem:
            found.append(problem)
        else:
            without += lacking(pod, observed.states.get(name))
    if any(_lacks_pods(target, observed, revision) for revision in revisions):
        gone = [pod for pod in observed.pods if not is_active(pod)]
        found += departures.departed(gone, now)
    for revision in revisions:
        found += _deployment_problems(target, observed, revision)
    return (*found, *without)


def _ready(
    counts: _Counts, complete: bool, problem: Problem | None, waiting: bool, synced: Finding
) -> Finding:
    def finding(status: Truth, reason: Reason, message: str) -> Finding:
        return Finding(ConditionType.READY, status, reason, message)

    share = f"{counts.ready_updated} of {counts.desired} pods of this revision are ready."
    if problem:
        return finding(Truth.FALSE, problem.reason, problem.message)
    if waiting:
        return finding(
            Truth.FALSE,
            Reason.WAITING_FOR_CLEANUP,
            "Waiting for the objects of a deleted resource with this name to go.",
        )
    if complete and synced.status is not Truth.TRUE:
        # A pod that does not follow the plan may send requests where nobody answers.
        return finding(Truth.FALSE, synced.reason, synced.message)
    if not complete:
        return finding(Truth.FALSE, Reason.ROLLOUT_IN_PROGRESS, share)
    if counts.desired == 0:
        return finding(Truth.FALSE, Reason.SCALED_TO_ZERO, "spec.replicas is 0.")
    if counts.ready_updated < counts.desired:
        return finding(Truth.FALSE, Reason.REPLICAS_NOT_READY, share)
    return finding(Truth.TRUE, Reason.ALL_REPLICAS_READY, share)


def _serving(counts: _Counts) -> Finding:
    if counts.ready:
        message = f"{counts.ready} pods take requests."
        return Finding(ConditionType.SERVING, Truth.TRUE, Reason.PODS_READY, message)
    reason = Reason.NO_READY_PODS if counts.desired else Reason.SCALED_TO_ZERO
    return Finding(ConditionType.SERVING, Truth.FALSE, reason, "No pod takes requests.")


def _progressing(target: Target, complete: bool, problems: Sequence[Problem]) -> Finding:
    kind = ConditionType.PROGRESSING
    for problem in problems:
        if problem.reason is Reason.PROGRESS_DEADLINE_EXCEEDED:
            return Finding(kind, Truth.FALSE, problem.reason, problem.message)
    if complete:
        message = f"Revision {target.revision} is rolled out."
        return Finding(kind, Truth.FALSE, Reason.ROLLOUT_COMPLETE, message)
    message = f"Rolling out revision {target.revision}."
    return Finding(kind, Truth.TRUE, Reason.ROLLOUT_IN_PROGRESS, message)


def _degraded(problems: Sequence[Problem]) -> Finding:
    if not problems:
        message = "Nothing is known to be wrong."
        return Finding(ConditionType.DEGRADED, Truth.FALSE, Reason.AS_EXPECTED, message)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return Finding(
        ConditionType.DEGRADED, Truth.TRUE, problems[0].reason, f"{problems[0].message}{more}"
    )


def _phase(conditions: Sequence[Condition], counts: _Counts) -> Phase:
    status = {condition.type: condition.status for condition in conditions}
    if status[ConditionType.DEGRADED] == Truth.TRUE:
        return Phase.DEGRADED
    if status[ConditionType.PAUSED] == Truth.TRUE:
        return Phase.PAUSED
    if status[ConditionType.PROGRESSING] == Truth.TRUE:
        return Phase.PROGRESSING
    if counts.desired == 0:
        return Phase.PAUSED
    return Phase.HEALTHY if status[ConditionType.READY] == Truth.TRUE else Phase.PROGRESSING


def _events(previous: Sequence[Condition], current: Sequence[Condition]) -> tuple[Event, ...]:
    """One event per reason that is new and worth telling."""
    events: dict[Reason, Event] = {}
    for condition in transitions(previous, current):
        reason = Reason(condition.reason)
        wrong = condition.type == ConditionType.DEGRADED and condition.status == Truth.TRUE
        stopped = condition.type == ConditionType.SERVING and condition.status == Truth.FALSE
        useless = reason in {Reason.SERVED_NAMESPACE_RETIRED, Reason.KEDA_NOT_INSTALLED}
        started = reason is Reason.ROLLOUT_IN_PROGRESS
        ill = (
            condition.type == ConditionType.ROLLOUT_HEALTHY and condition.status == Truth.FALSE
        ) and reason in {Reason.INVALID_ANNOTATION, Reason.STABLE_CAPACITY}
        failed = (
            condition.type == ConditionType.ANALYSIS_HEALTHY and condition.status == Truth.FALSE
        )
        unfed = condition.status == Truth.FALSE and reason in _CONFIG_FAULTS
        unrouted = (
            condition.type == ConditionType.ROUTE_ACCEPTED and condition.status == Truth.FALSE
        ) and reason is not Reason.ROUTE_NOT_FOLLOWED
        if (
            wrong
            or useless
            or unrouted
            or ill
            or failed
            or unfed
            or (stopped and previous and reason is Reason.NO_READY_PODS)
        ):
            events[reason] = Event(reason, condition.message, warning=True)
        elif reason in _ANNOUNCED or (started and condition.type == ConditionType.PROGRESSING):
            events.setdefault(reason, Event(reason, condition.message))
    return tuple(events.values())


def outcome(
    target: Target,
    observed: Observed,
    decision: Decision,
    plan: ChildPlan,
    refused: Sequence[Problem],
    now: str,
    configured: Configured | None = None,
) -> Outcome:
    """The status after a pass that did `plan`, of which `refused` did not succeed."""
    configured = configured or Configured()
    counts = _counts(target, observed)
    verdict = judge(target, observed)
    routed = routing.judge(target, observed, refused)
    scaled = autoscaling.judge(target, observed, refused)
    refused = [item for item in refused if item not in refusals.NOT_INSTALLED.values()]
    problems = _problems(
        target, observed, decision, (*plan.problems, *refused), verdict.finding, now
    )
    complete = _arrived(target, observed, decision, plan)
    asked, resource = Asked.of(target, rotating=configured.rotating), target.resource
    rollout = said.findings(asked, decision, resource.conditions, observed.states)
    synced = next(item for item in rollout if item.type is ConditionType.TRAFFIC_SYNCED)
    in_the_way = [item for item in problems if not item.serves]
    first = in_the_way[0] if in_the_way else None
    tiers = namespaces.judge(target, verdict.latched)
    findings = (
        _ready(counts, complete, first, bool(plan.waiting), synced),
        _serving(counts),
        _progressing(target, complete, problems),
        _degraded(problems),
        verdict.finding,
        *([scaled] if scaled else []),
        *([tiers] if tiers else []),
        *([routed] if routed else []),
        *configured.findings,
        *rollout,
    )
    conditions = merge(resource.conditions, findings, now, resource.generation)
    config = configured.status(target, decision.stable)
    status = {
        "observedGeneration": resource.generation,
        "phase": _phase(conditions, counts).value,
        "url": url(target),
        "model": target.model_id,
        "revision": target.revision,
        "replicas": counts.active,
        "updatedReplicas": counts.updated,
        "readyReplicas": counts.ready_updated,
        "ready": f"{counts.ready_updated}/{counts.desired}",
        "selector": f"{names.LABEL_APP}={names.APP},{names.LABEL_OWNER}={resource.name}",
        **({"identity": verdict.latched} if verdict.latched else {}),
        "rollout": decision.rollout.model_dump(mode="json", by_alias=True, exclude_none=True),
        **(
            {"config": config.model_dump(mode="json", by_alias=True, exclude_none=True)}
            if config
            else {}
        ),
        "conditions": [condition.to_dict() for condition in conditions],
    }
    changes = said.told(resource.status.get("rollout"), asked, decision)
    events = (
        *_events(resource.conditions, conditions),
        *changes,
        *configured.events(target, config, written=not refused),
    )
    calm = complete and not in_the_way and synced.status is Truth.TRUE
    settled = calm and counts.ready_updated == counts.desired and not configured.moving
    return Outcome(status, _once(events), settled)


def _problems(
    target: Target,
    observed: Observed,
    decision: Decision,
    known: Sequence[Problem],
    identity: Finding,
    now: str,
) -> list[Problem]:
    problems = [
        *known,
        *problems_of(target, observed, decision.stable, now),
        *said.problems(decision),
    ]
    mismatch = identity.status is Truth.FALSE
    if mismatch and not any(item.reason is Reason.IDENTITY_MISMATCH for item in problems):
        problems.append(Problem(identity.reason, identity.message))
    return sorted(problems, key=lambda item: item.serves)


def _arrived(target: Target, observed: Observed, decision: Decision, plan: ChildPlan) -> bool:
    """Whether clients reach the present revision, and its pods are as its Deployment wants.

    What is done about a revision that leaves, or noted beside a plan that stays, is no rollout;
    nor is a route: TrafficSynced waits for it where it divides. Nor an autoscaler.
    """
    beside = {("ConfigMap", target.traffic_name)}
    beside |= {(kind, target.name) for kind in (ROUTE, HPA, SCALED_OBJECT)}
    changed = [
        item
        for item in plan.apply
        if revision_of(item) in (None, target.revision) and key_of(item) not in beside
    ]
    if changed or plan.waiting or decision.renewed:
        return False
    service = observed.child("Service", target.name) or {}
    selector = service.get("spec", {}).get("selector", {})
    reached = selector.get(names.LABEL_REVISION) == target.revision == decision.stable
    return reached and deployment_settled(target, observed)


def _once(events: Sequence[Event]) -> tuple[Event, ...]:
    """One event for each reason; the first tells most."""
    return tuple({event.reason: event for event in reversed(events)}.values())[::-1]


def invalid(resource: Resource, message: str, now: str) -> Outcome:
    """The status of a resource whose spec cannot be served; its pods are left as they are."""
    return _left_alone(resource, Truth.FALSE, Reason.INVALID_SPEC, message, now)


def failed(resource: Resource, message: str, now: str) -> Outcome:
    """The status of a resource at which the operator itself fails: what it is nobody knows."""
    return _left_alone(resource, Truth.UNKNOWN, Reason.OPERATOR_FAILED, message, now)


def _left_alone(
    resource: Resource, ready: Truth, reason: Reason, message: str, now: str
) -> Outcome:
    findings = (
        Finding(ConditionType.READY, ready, reason, message),
        Finding(ConditionType.DEGRADED, Truth.TRUE, reason, message),
    )
    known = {finding.type.value for finding in findings}
    kept = tuple(item for item in resource.conditions if item.type not in known)
    conditions = (*merge(resource.conditions, findings, now, resource.generation), *kept)
    status = {
        **resource.status,
        "observedGeneration": resource.generation,
        "phase": Phase.DEGRADED.value,
        "conditions": [condition.to_dict() for condition in conditions],
    }
    return Outcome(status, _events(resource.conditions, conditions), settled=False)
