"""The state of a rollout in one word, and what is waited for in one sentence."""

from __future__ import annotations

from dataclasses import dataclass

from chiasm_contract.api.status import RolloutState, StatusRollout
from chiasm_contract.traffic import WHOLE, TrafficPlan
from chiasm_contract.weights import weight_text

from chiasm_operator.reconcile.rollout.asked import Asked
from chiasm_operator.reconcile.rollout.seen import Seen
from chiasm_operator.reconcile.rollout.steps import kind


@dataclass(frozen=True)
class Moment:
    """What the words are about.

    Attributes:
        plan: what is to be written.
        lagging: pods that do not follow it yet.
        held: nothing advances until somebody says so.
        whole: the canary is on its way to everything, past all steps.
    """

    asked: Asked
    seen: Seen
    rollout: StatusRollout
    plan: TrafficPlan
    lagging: tuple[str, ...]
    held: bool
    whole: bool


def described(moment: Moment) -> StatusRollout:
    """Its rollout with its state and its sentence."""
    state, message = _described(moment)
    return moment.rollout.model_copy(update={"state": state, "message": message})


def _described(moment: Moment) -> tuple[RolloutState, str]:
    asked, seen, rollout, plan = moment.asked, moment.seen, moment.rollout, moment.plan
    canary = rollout.canary_revision
    if rollout.aborted_revision:
        return _aborted(moment)
    if not canary:
        going = [item.revision for item in rollout.leaving if item.why != "warm"]
        if seen.pointer not in (None, plan.stable.revision):
            return "Promoting", "The Service for clients moves to the new revision."
        if plan.canary is not None:
            return "Shifting", f"Revision {plan.canary.revision} gives its traffic back."
        if going:
            return "Draining", f"Waiting for the last answers of {', '.join(going)}."
        return "Idle", ""
    if moment.held:
        return "Paused", _why_held(asked, rollout)
    if plan.canary is not None and plan.canary.revision != canary:
        gone = plan.canary.revision
        return "Shifting", f"Revision {gone} gives its traffic back before {canary} begins."
    if moment.lagging or plan != seen.plan:
        return "Shifting", f"Waiting for sidecars to follow plan {plan.epoch}."
    if not seen.routed:
        return "Shifting", f"Waiting for Gateways to follow plan {plan.epoch}: see RouteAccepted."
    if moment.whole and plan.share == WHOLE:
        return "Promoting", f"Revision {canary} answers everything and takes over."
    return _between(asked, seen, rollout, plan)


def _between(
    asked: Asked, seen: Seen, rollout: StatusRollout, plan: TrafficPlan
) -> tuple[RolloutState, str]:
    canary = rollout.canary_revision
    share = weight_text(plan.share)
    if rollout.manual_weight is not None and not rollout.promoting:
        if rollout.manual_weight == share:
            giver = "the annotation"
            if rollout.weight_by == "environment" and asked.environment:
                giver = f"environment {asked.environment[0]!r}"
            return "Paused", f"Revision {canary} has the {share} % that {giver} gives it."
        return "Preparing", f"Bringing up {canary} for {rollout.manual_weight} %."
    steps = asked.policy.steps
    if not (rollout.rolling or rollout.promoting):
        at = rollout.current_step
        if rollout.held_since is not None:
            text = "pods take up new configuration; condition ConfigSynced says which"
            return "Paused", f"Step {at + 1} waits: {text}."
        match kind(steps, at):
            case "pause":
                until = rollout.step_deadline
                return "Paused", f"Step {at + 1}: until {until or 'rollout-action: resume'}."
            case "analysis":
                return "Verifying", f"Step {at + 1}: comparing both revisions."
    return "Preparing", f"Bringing up {canary}; it has {share} % and {seen.of(canary).ready} pods."


def _aborted(moment: Moment) -> tuple[RolloutState, str]:
    seen, rollout, plan = moment.seen, moment.rollout, moment.plan
    canary, why = rollout.aborted_revision or "", rollout.abort_message or ""
    text = f"Revision {canary} was aborted: {why}"
    settled = plan == seen.plan and not moment.lagging and seen.routed and not plan.share
    if settled and not seen.of(canary).replicas:
        return "Aborted", text
    return "Aborting", text


def _why_held(asked: Asked, rollout: StatusRollout) -> str:
    if asked.faults:
        return asked.faults[0].message
    if asked.policy.paused:
        return "spec.rollout.paused is true."
    if rollout.inconclusive:
        return (
            f"Step {rollout.current_step + 1}: too little to compare; "
            "rollout-action resume goes on, abort goes back."
        )
    return "Held by rollout-action: pause."
