"""`spec.rollout.steps`, one after the other: what each asks for, and when it is done.

A step is done when what it asks for is observed, not when it is written. Must not know: how a
share is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from chiasm_contract import instants
from chiasm_contract.api.rollout import Analysis, AnalysisStep, Step
from chiasm_contract.api.status import StatusRollout
from chiasm_contract.weights import parse_weight

from chiasm_operator.reconcile.analysis import Kind as Outcome
from chiasm_operator.reconcile.analysis import Verdict
from chiasm_operator.reconcile.rollout.actions import aborted, next_step

Look = Callable[[], Verdict]


@dataclass(frozen=True)
class Wanted:
    """What the steps up to now ask for. `replicas` 0 leaves them to the share."""

    share: int = 0
    mirror: int = 0
    replicas: int = 0


@dataclass(frozen=True)
class Reached:
    """What is observed of it: the plan that is followed, the ready pods, and how to compare."""

    share: int | None
    mirror: int | None
    ready: int
    look: Look


@dataclass(frozen=True)
class Advanced:
    """Where the steps are now, and what the last look found, when there was one."""

    rollout: StatusRollout
    verdict: Verdict | None = None


def wanted(steps: list[Step], current: int) -> Wanted:
    """What is in force at step `current` (which is included)."""
    found = Wanted()
    for step in steps[: current + 1]:
        if step.set_weight is not None:
            share = parse_weight(step.set_weight)
            found = Wanted(share, found.mirror, 0)
        if step.set_canary_scale is not None:
            found = Wanted(found.share, found.mirror, step.set_canary_scale.replicas)
        if step.mirror is not None:
            found = Wanted(found.share, parse_weight(step.mirror.percent), found.replicas)
    return found


def advance(
    steps: list[Step], policy: Analysis, rollout: StatusRollout, reached: Reached, now: int
) -> Advanced:
    """Past every step that is done; ends at one that is not, or behind the last."""
    verdict = None
    while rollout.current_step < len(steps):
        step = steps[rollout.current_step]
        rollout = _begun(step, rollout, now)
        if step.analysis is not None:
            looked = _analysis(step.analysis, policy, rollout, reached.look, now)
            rollout, verdict = looked.rollout, looked.verdict or verdict
            done = looked.done
        else:
            done = _done(step, rollout, reached, now)
        if not done:
            break
        rollout = next_step(rollout)
    return Advanced(rollout, verdict)


def _begun(step: Step, rollout: StatusRollout, now: int) -> StatusRollout:
    if rollout.step_began is not None:
        return rollout
    seconds = None
    if step.pause is not None:
        seconds = step.pause.seconds
    if step.analysis is not None:
        seconds = step.analysis.seconds
    deadline = None if seconds is None else instants.to_text(now + seconds)
    return rollout.model_copy(
        update={"step_began": instants.to_text(now), "step_deadline": deadline}
    )


def _done(step: Step, rollout: StatusRollout, reached: Reached, now: int) -> bool:
    if step.set_weight is not None:
        return reached.share == parse_weight(step.set_weight)
    if step.mirror is not None:
        return reached.mirror == parse_weight(step.mirror.percent)
    if step.set_canary_scale is not None:
        return reached.ready >= step.set_canary_scale.replicas
    return _over(rollout, now)


def _over(rollout: StatusRollout, now: int) -> bool:
    deadline = rollout.step_deadline
    return deadline is not None and now >= instants.to_seconds(deadline)


@dataclass(frozen=True)
class _Looked:
    rollout: StatusRollout
    done: bool = False
    verdict: Verdict | None = None


def _analysis(
    step: AnalysisStep, policy: Analysis, rollout: StatusRollout, look: Look, now: int
) -> _Looked:
    """A look every `intervalSeconds`; the step ends with one at its deadline or behind it."""
    due = rollout.next_look
    if due is None:
        first = instants.to_text(now + min(policy.interval_seconds, step.seconds))
        return _Looked(rollout.model_copy(update={"next_look": first}))
    if now < instants.to_seconds(due) or rollout.inconclusive:
        return _Looked(rollout)
    verdict = look()
    later = instants.to_text(now + policy.interval_seconds)
    rollout = rollout.model_copy(update={"next_look": later})
    if verdict.kind is Outcome.FAIL:
        failed = rollout.failed_looks + 1
        rollout = rollout.model_copy(update={"failed_looks": failed})
        if failed > policy.failure_limit:
            rollout = aborted(rollout, rollout.canary_revision, verdict.message)
        return _Looked(rollout, verdict=verdict)
    if verdict.kind is Outcome.HOLD:
        return _without_data(policy, rollout, verdict, now)
    # Behind a look without fault the next is the first again; one without data says nothing.
    rollout = rollout.model_copy(update={"failed_looks": 0})
    return _Looked(rollout, _over(rollout, now), verdict)


def _without_data(policy: Analysis, rollout: StatusRollout, verdict: Verdict, now: int) -> _Looked:
    if policy.on_no_data == "skip":
        return _Looked(rollout, _over(rollout, now), verdict)
    began = instants.to_seconds(rollout.step_began or instants.to_text(now))
    if now < began + policy.no_data_deadline_seconds:
        return _Looked(rollout, verdict=verdict)
    if policy.on_no_data == "fail":
        rollout = aborted(rollout, rollout.canary_revision, verdict.message)
    else:
        rollout = rollout.model_copy(update={"inconclusive": True})
    return _Looked(rollout, verdict=verdict)


Kind = Literal["pause", "analysis", "other", "none"]


def kind(steps: list[Step], current: int) -> Kind:
    """Of the present step; none behind the last."""
    if current >= len(steps):
        return "none"
    step = steps[current]
    if step.pause is not None:
        return "pause"
    return "analysis" if step.analysis is not None else "other"
