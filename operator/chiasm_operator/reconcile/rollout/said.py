"""What is told of a rollout: conditions, and an event for each thing that changed.

Events come from comparing two statuses, not from what a pass did: a pass that was killed before
it told leaves the telling to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from chiasm_contract.api.status import StatusRollout
from chiasm_contract.conditions import Condition, ConditionType, Finding, Reason, Truth
from chiasm_contract.messages import PodState
from pydantic import ValidationError

from chiasm_operator.reconcile.analysis import Kind
from chiasm_operator.reconcile.problems import Event, Problem
from chiasm_operator.reconcile.rollout.asked import Asked
from chiasm_operator.reconcile.rollout.decide import Decision

_MAX_NAMED = 3
_TRUTHS = {Kind.PASS: Truth.TRUE, Kind.FAIL: Truth.FALSE, Kind.HOLD: Truth.UNKNOWN}


def problems(decision: Decision) -> tuple[Problem, ...]:
    """What keeps the present spec from being served."""
    rollout = decision.rollout
    if rollout.aborted_revision is None:
        return ()
    text = (
        f"Revision {rollout.aborted_revision} was aborted: {rollout.abort_message} Revision "
        f"{decision.stable} serves. Change the spec, undo it, or set rollout-action: retry."
    )
    return (Problem(Reason.ROLLOUT_ABORTED, text),)


def findings(
    asked: Asked,
    decision: Decision,
    previous: tuple[Condition, ...],
    states: Mapping[str, PodState],
) -> tuple[Finding, ...]:
    """The four conditions of a rollout."""
    return (
        _paused(asked, decision),
        _healthy(asked, decision),
        _synced(decision, states, previous),
        _analysis(decision, previous),
    )


def _paused(asked: Asked, decision: Decision) -> Finding:
    kind, rollout = ConditionType.PAUSED, decision.rollout
    if rollout.state != "Paused":
        return Finding(kind, Truth.FALSE, Reason.NOT_PAUSED, "Nothing holds a rollout.")
    if asked.faults:
        reason = Reason.INVALID_ANNOTATION
    elif asked.policy.paused:
        reason = Reason.PAUSED_BY_SPEC
    elif rollout.inconclusive:
        reason = Reason.ANALYSIS_INCONCLUSIVE
    elif rollout.paused:
        reason = Reason.PAUSED_BY_ACTION
    elif rollout.held_since is not None:
        reason = Reason.ROTATION_IN_PROGRESS
    elif rollout.manual_weight is not None:
        reason = Reason.MANUAL_WEIGHT
    else:
        reason = Reason.CANARY_PAUSE_STEP
    return Finding(kind, Truth.TRUE, reason, rollout.message)


def _healthy(asked: Asked, decision: Decision) -> Finding:
    kind, rollout = ConditionType.ROLLOUT_HEALTHY, decision.rollout
    if asked.faults:
        return Finding(kind, Truth.FALSE, Reason.INVALID_ANNOTATION, asked.faults[0].message)
    if decision.short_of_stable:
        text = f"Revision {decision.stable} has too few ready pods to take all traffic back."
        return Finding(kind, Truth.FALSE, Reason.STABLE_CAPACITY, text)
    if rollout.aborted_revision is not None:
        return Finding(kind, Truth.FALSE, Reason.ROLLOUT_ABORTED, problems(decision)[0].message)
    return Finding(kind, Truth.TRUE, Reason.AS_EXPECTED, rollout.message or "No rollout.")


def _synced(
    decision: Decision, states: Mapping[str, PodState], previous: tuple[Condition, ...]
) -> Finding:
    kind, epoch = ConditionType.TRAFFIC_SYNCED, decision.plan.epoch
    synced = f"Every pod that clients reach follows plan {epoch}."
    before = next((item for item in previous if item.type == kind), None)
    if not decision.lagging and not decision.routed:
        text = f"Gateways do not follow plan {epoch} yet; condition RouteAccepted says why."
        return Finding(kind, Truth.FALSE, Reason.ROUTE_NOT_FOLLOWED, text)
    silent = not any(pod in states for pod in decision.lagging)
    # Whoever followed this plan and only did not answer this time follows it still.
    if not decision.lagging or (silent and before is not None and before.message == synced):
        return Finding(kind, Truth.TRUE, Reason.PLAN_ACKNOWLEDGED, synced)
    named = ", ".join(decision.lagging[:_MAX_NAMED])
    reported = [states[pod].traffic.problem for pod in decision.lagging if pod in states]
    said = next((f" One says: {problem}" for problem in reported if problem), "")
    reason = Reason.PLAN_REFUSED if said else Reason.PLAN_NOT_ACKNOWLEDGED
    text = f"{len(decision.lagging)} pods do not follow plan {epoch} yet: {named}.{said}"
    return Finding(kind, Truth.FALSE, reason, text)


def _analysis(decision: Decision, previous: tuple[Condition, ...]) -> Finding:
    kind, verdict, rollout = ConditionType.ANALYSIS_HEALTHY, decision.verdict, decision.rollout
    if verdict is not None:
        truth = _TRUTHS[verdict.kind]
        return Finding(kind, truth, Reason(verdict.reason), verdict.message)
    before = next((item for item in previous if item.type == kind), None)
    if before is not None and rollout.canary_revision and rollout.current_step:
        return Finding(kind, Truth(before.status), Reason(before.reason), before.message)
    return Finding(kind, Truth.UNKNOWN, Reason.NO_ANALYSIS, "No revisions are being compared.")


def told(stored: Mapping[str, Any] | None, asked: Asked, decision: Decision) -> tuple[Event, ...]:
    """What changed since the stored status; nothing of a resource that had none."""
    notices = [Event(item.reason, item.message, True) for item in decision.notices]
    if not stored:
        return tuple(notices)
    try:
        before = StatusRollout.model_validate(stored)
    except ValidationError:
        return tuple(notices)
    return (*_changes(before, decision.rollout, asked), *notices)


def _changes(before: StatusRollout, after: StatusRollout, asked: Asked) -> Iterator[Event]:
    canary = after.canary_revision
    same = canary == before.canary_revision
    num_steps = len(asked.policy.steps)
    if same and canary and after.current_step > before.current_step:
        done = f"Step {after.current_step} of {num_steps} is done for revision {canary}."
        yield Event(Reason.ROLLOUT_STEP_COMPLETED, done)
    moved = after.stable_revision != before.stable_revision
    if after.weight != before.weight and not moved and not after.rolling:
        share = f"The canary's share of new conversations is {after.weight} %."
        yield Event(Reason.TRAFFIC_WEIGHT_UPDATED, share)
    if before.stable_revision and after.stable_revision != before.stable_revision:
        text = f"Revision {after.stable_revision} takes the place of {before.stable_revision}."
        yield Event(Reason.ROLLOUT_PROMOTED, text)
    if after.state == "Paused" and before.state != "Paused":
        yield Event(Reason.ROLLOUT_PAUSED, after.message)
    if before.paused and not after.paused and same and not after.aborted_revision:
        yield Event(Reason.ROLLOUT_RESUMED, f"The rollout of revision {canary} goes on.")
    if after.aborted_revision and before.aborted_revision is None:
        text = f"Revision {after.aborted_revision} is taken back: {after.abort_message}"
        yield Event(Reason.ROLLOUT_ABORTED, text, warning=True)
    if before.aborted_revision and before.aborted_revision == canary and not after.aborted_revision:
        yield Event(Reason.ROLLOUT_RETRIED, f"Revision {canary} begins again.")
    if after.inconclusive and not before.inconclusive:
        yield Event(Reason.ANALYSIS_INCONCLUSIVE, after.message, warning=True)
    if after.manual_latched and not before.manual_latched:
        text = (
            f"Annotation canary-weight is gone; revision {canary} keeps {after.manual_weight} %. "
            "Set it to auto to go by spec.rollout.steps."
        )
        yield Event(Reason.MANUAL_WEIGHT_ANNOTATION_REMOVED, text, warning=True)
