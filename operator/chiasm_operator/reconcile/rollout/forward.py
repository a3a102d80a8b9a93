"""A canary on its way: which share it is to have, and the pods for it."""

from __future__ import annotations

from dataclasses import dataclass

from chiasm_contract.api.rollout import Analysis
from chiasm_contract.api.status import StatusRollout
from chiasm_contract.conditions import Reason
from chiasm_contract.traffic import WHOLE
from chiasm_contract.weights import parse_weight

from chiasm_operator.reconcile.analysis import Kind as Outcome
from chiasm_operator.reconcile.analysis import Policy, Verdict, judge
from chiasm_operator.reconcile.rollout.asked import Asked
from chiasm_operator.reconcile.rollout.capacity import bearable, bears, need, replace
from chiasm_operator.reconcile.rollout.seen import Seen
from chiasm_operator.reconcile.rollout.steps import Reached, advance, wanted
from chiasm_operator.reconcile.rollout.waiting import waited


@dataclass(frozen=True)
class Way:
    """The next stretch.

    Attributes:
        share: of the plan to write, which the ready pods can bear.
        aim: the share that pods are brought up for.
        replicas: pods of the canary that a step asks for; 0: as many as `aim` needs.
        whole: it is on its way to everything, past all steps.
        anew: what was counted is forgotten.
        promote: the canary bears everything and is followed by everybody.
    """

    rollout: StatusRollout
    share: int
    aim: int
    mirror: int = 0
    replicas: int = 0
    whole: bool = False
    promote: bool = False
    held: bool = False
    anew: bool = False
    verdict: Verdict | None = None


def planned_canary(seen: Seen, revision: str) -> bool:
    """Whether the plan that is there knows `revision` as its canary."""
    canary = seen.plan.canary if seen.plan else None
    return canary is not None and canary.revision == revision


def share_of(seen: Seen, revision: str) -> int:
    """The share of a canary in the plan that is there."""
    return seen.plan.share if seen.plan and planned_canary(seen, revision) else 0


def way(asked: Asked, seen: Seen, rollout: StatusRollout, stable: str, now: int) -> Way:
    """What comes next for the present target beside `stable`."""
    policy = asked.policy
    manual = rollout.manual_weight
    # Before anything was ever served there is nothing to compare with, or to protect.
    first = rollout.stable_revision != stable
    rolling = first or not (policy.steps or manual is not None)
    rollout = rollout.model_copy(update={"rolling": rolling})
    held = bool(asked.faults) or policy.paused or rollout.paused or rollout.inconclusive
    verdict = None
    by_steps = not (rolling or rollout.promoting or manual is not None)
    rollout, anew = waited(rollout, waits=asked.rotating and by_steps, now=now)
    if by_steps and not held and rollout.held_since is None and not anew:
        steps = advance(policy.steps, policy.analysis, rollout, _reached(seen, asked, stable), now)
        rollout, verdict = steps.rollout, steps.verdict
        held = rollout.inconclusive
    want = wanted(policy.steps, rollout.current_step)
    before = share_of(seen, asked.target)
    through = manual is None and rollout.current_step >= len(policy.steps)
    whole = not held and (rolling or rollout.promoting or through)
    aim = before if held else WHOLE if whole else parse_weight(manual) if manual else want.share
    by_steps = manual is None and not rolling
    return Way(
        rollout=rollout,
        share=_share(asked, seen, stable, before, aim, rolling),
        aim=aim,
        mirror=want.mirror if by_steps and not whole else 0,
        replicas=want.replicas if by_steps and not whole else 0,
        whole=whole,
        promote=whole and _bears_all(asked, seen, stable, before, rolling),
        held=held,
        anew=anew,
        verdict=verdict,
    )


def _reached(seen: Seen, asked: Asked, stable: str) -> Reached:
    followed = planned_canary(seen, asked.target) and seen.acknowledged(stable, seen.pointer)
    plan = seen.plan if followed else None
    policy = limits(asked.policy.analysis)
    return Reached(
        share=plan.share if plan else None,
        mirror=plan.mirror if plan else None,
        ready=seen.of(asked.target).ready,
        look=lambda: _look(policy, asked, seen, stable),
    )


def limits(analysis: Analysis) -> Policy:
    """What counts as worse."""
    agreement = analysis.min_agreement_percent
    return Policy(
        min_samples=analysis.min_samples,
        max_error_increase=analysis.max_error_increase_percent / 100,
        max_first_token_ratio=analysis.max_first_token_ratio,
        max_inter_token_ratio=analysis.max_inter_token_ratio,
        max_length_change=analysis.max_output_length_change_percent / 100,
        max_guard_reject_increase=analysis.max_guard_reject_increase,
        min_agreement=None if agreement is None else agreement / 100,
    )


def _look(policy: Policy, asked: Asked, seen: Seen, stable: str) -> Verdict:
    if asked.replicas and not seen.of(asked.target).ready:
        text = f"No pod of {asked.target} is ready to be compared."
        return Verdict(Outcome.FAIL, Reason.NO_READY_PODS, text)
    return judge(policy, seen.counts(asked.target), seen.counts(stable))


def _must(asked: Asked, rolling: bool) -> int:
    """Pods that must serve; with steps nothing is taken from stable before the end."""
    if not rolling:
        return asked.replicas
    return min(asked.replicas, max(1, asked.replicas - asked.unavailable))


def _share(asked: Asked, seen: Seen, stable: str, before: int, aim: int, rolling: bool) -> int:
    mine, theirs = seen.of(asked.target), seen.of(stable)
    most = bearable(_must(asked, rolling), mine, theirs)
    if not mine.ready and asked.replicas:
        return 0
    if aim < before:
        # As much as stable can take back.
        return max(aim, min(before, WHOLE - bearable(_must(asked, rolling), theirs, mine), most))
    if rolling:
        return min(aim, most)
    return aim if bears(_must(asked, rolling), mine, theirs, aim) else min(before, most)


def _bears_all(asked: Asked, seen: Seen, stable: str, before: int, rolling: bool) -> bool:
    mine, theirs = seen.of(asked.target), seen.of(stable)
    if not asked.replicas:
        return True
    if rolling and not theirs.ready and mine.ready:
        return True
    followed = seen.acknowledged(stable, seen.pointer)
    return before == WHOLE and followed and mine.ready >= _must(asked, rolling)


def pods(asked: Asked, seen: Seen, way: Way, stable: str, others: int) -> dict[str, int]:
    """Pods of both revisions."""
    target = asked.target
    mine, theirs = seen.of(target), seen.of(stable)
    before = share_of(seen, target)
    followed = seen.acknowledged(stable, seen.pointer)
    must = _must(asked, way.rollout.rolling)
    if way.held:
        least = need(must, max(before, way.share))
        grown = max(mine.replicas, least)
        # It stays where it is, but for pods that are asked for on top.
        more = max(theirs.replicas, asked.replicas - grown)
        return {stable: more if way.rollout.rolling else asked.replicas, target: grown}
    if way.rollout.rolling:
        pace = asked.pace
        kept = theirs.replicas
        if followed:
            kept = need(must, WHOLE - min(before, way.share))
            # Clients reach its pods until the Service for clients has moved.
            kept = max(kept, 1) if pace.must_serve else 0
        risen, left = replace(pace, mine, theirs, others, kept)
        return {stable: left, target: risen}
    least = max(need(must, max(way.aim, before, way.share)), way.replicas, min(1, must))
    grown = least if followed else max(least, mine.replicas)
    return {stable: asked.replicas, target: grown}
