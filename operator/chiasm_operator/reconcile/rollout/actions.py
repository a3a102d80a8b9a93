"""What an annotation changes of where a rollout is; each action is done once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from chiasm_contract.api.status import LastAction, StatusRollout
from chiasm_contract.conditions import Reason
from chiasm_contract.rollout_annotations import Action
from chiasm_contract.weights import weight_text

from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.reconcile.rollout.asked import Asked


@dataclass(frozen=True)
class Acted:
    """Where the rollout is behind the annotations, and what is to be told of them."""

    rollout: StatusRollout
    notices: tuple[Problem, ...] = ()


def act(asked: Asked, before: StatusRollout, canary: str) -> Acted:
    """Weight first, then the action. `canary` is empty when there is nothing to act on."""
    rollout = _manual(asked, before, canary)
    action = asked.action
    if action is None:
        return Acted(rollout.model_copy(update={"last_action": None}))
    last = rollout.last_action
    if last and last.value == action.value and action.revision not in ("", asked.target):
        # Read already, and meant for another revision: for that one it may still be to come.
        return Acted(rollout)
    if last == LastAction(value=action.value, revision=asked.target):
        return Acted(rollout)
    seen = LastAction(value=action.value, revision=asked.target)
    rollout = rollout.model_copy(update={"last_action": seen})
    ignored = _ignored(action, asked.target, canary)
    if last is not None and last.value == action.value and not action.revision:
        ignored = (
            f"rollout-action {action.value!r} was done for revision {last.revision}; for "
            f"{asked.target} write {action.verb}:{asked.target}."
        )
    if ignored:
        return Acted(rollout, (Problem(Reason.ACTION_IGNORED, ignored),))
    return Acted(_done(action, rollout, asked, canary))


def _ignored(action: Action, target: str, canary: str) -> str | None:
    if action.revision and action.revision != target:
        return (
            f"rollout-action {action.value!r} names revision {action.revision}; the present one "
            f"is {target}."
        )
    if not canary:
        return (
            f"rollout-action {action.value!r} finds no rollout under way; it is done when the "
            "annotation changes or names the revision that it is meant for."
        )
    return None


def _manual(asked: Asked, before: StatusRollout, canary: str) -> StatusRollout:
    """The weight in force: of the annotation, else what it was when the annotation went, else that
    of the environment."""
    if not canary or asked.faults:
        return before
    if asked.weight == "auto":
        return _weighed(before, None, None)
    if asked.weight is not None:
        return _weighed(before, asked.weight, "annotation")
    if before.manual_weight is not None and before.weight_by != "environment":
        return before.model_copy(update={"manual_latched": True})
    given = asked.environment
    return _weighed(before, given[1] if given else None, "environment" if given else None)


def _weighed(
    rollout: StatusRollout, weight: int | None, by: Literal["annotation", "environment"] | None
) -> StatusRollout:
    text = None if weight is None else weight_text(weight)
    return rollout.model_copy(
        update={"manual_weight": text, "weight_by": by, "manual_latched": False}
    )


def _done(action: Action, rollout: StatusRollout, asked: Asked, canary: str) -> StatusRollout:
    match action.verb:
        case "pause":
            return rollout.model_copy(update={"paused": True})
        case "resume":
            return _resumed(rollout, asked)
        case "promote":
            return retried(rollout).model_copy(
                update={"promoting": True, "paused": False, "inconclusive": False}
            )
        case "abort":
            return aborted(rollout, canary, "rollout-action: abort.")
        case _:
            return retried(rollout)


def _resumed(rollout: StatusRollout, asked: Asked) -> StatusRollout:
    steps = asked.policy.steps
    at = rollout.current_step
    waiting = at < len(steps) and steps[at].pause is not None
    if rollout.inconclusive or (waiting and not rollout.paused):
        rollout = next_step(rollout)
    return rollout.model_copy(update={"paused": False})


def next_step(rollout: StatusRollout) -> StatusRollout:
    """The rollout at the beginning of its next step."""
    return rollout.model_copy(
        update={
            "current_step": rollout.current_step + 1,
            "step_began": None,
            "step_deadline": None,
            "next_look": None,
            "failed_looks": 0,
            "inconclusive": False,
        }
    )


def begun(rollout: StatusRollout, canary: str) -> StatusRollout:
    """The rollout at the beginning of its first step, for this canary."""
    return next_step(rollout).model_copy(
        update={
            "canary_revision": canary,
            "held_since": None,
            "current_step": 0,
            "paused": False,
            "promoting": False,
            "manual_weight": None,
            "weight_by": None,
            "manual_latched": False,
        }
    )


def aborted(rollout: StatusRollout, canary: str, why: str) -> StatusRollout:
    """The rollout given up."""
    return rollout.model_copy(
        update={
            "aborted_revision": canary,
            "abort_message": why,
            "promoting": False,
            "paused": False,
            "inconclusive": False,
        }
    )


def retried(rollout: StatusRollout) -> StatusRollout:
    """An aborted rollout at its first step again; a manual weight stays."""
    if rollout.aborted_revision is None:
        return rollout
    again = begun(rollout, rollout.aborted_revision)
    return again.model_copy(
        update={
            "aborted_revision": None,
            "abort_message": None,
            "manual_weight": rollout.manual_weight,
            "weight_by": rollout.weight_by,
            "manual_latched": rollout.manual_latched,
            "leaving": [
                item for item in rollout.leaving if item.revision != rollout.aborted_revision
            ],
        }
    )
