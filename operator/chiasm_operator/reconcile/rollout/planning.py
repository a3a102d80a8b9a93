"""The traffic plan: who answers what, numbered anew when, and only when, it changes."""

from __future__ import annotations

from dataclasses import dataclass

from chiasm_contract.traffic import Override, TrafficPlan, Version

from chiasm_operator.reconcile.rollout.asked import Asked
from chiasm_operator.reconcile.rollout.seen import Seen


@dataclass(frozen=True)
class Split:
    """What the plan is to say. `canary` None: stable answers everything; `anew`: what was counted
    is forgotten."""

    stable: str
    canary: str | None = None
    share: int = 0
    mirror: int = 0
    anew: bool = False


def planned(asked: Asked, seen: Seen, split: Split, address: dict[str, str]) -> TrafficPlan:
    """The plan for `split`; the one that is there when it says the same."""
    before = seen.plan
    beside = split.canary is not None
    sticky = asked.policy.sticky
    plan = TrafficPlan(
        epoch=before.epoch if before else 1,
        window=before.window if before else 1,
        stable=_version(seen, split.stable, address),
        canary=_version(seen, split.canary, address) if split.canary else None,
        share=split.share,
        mirror=split.mirror if beside else 0,
        override=asked.override if beside else Override(),
        divided_by=asked.divided_by,
        sticky=sticky.mode == "conversation",
        sticky_seconds=sticky.ttl_seconds,
        members=seen.of(split.stable).entries if beside else (),
        member_addresses=seen.of(split.stable).addresses if beside else (),
    )
    if before == plan and not split.anew:
        return plan
    # Behind a plan that was lost, sidecars follow only one that is newer than what they know.
    known = [seen.rollout.epoch, *(report.epoch for report in seen.reports.values())]
    epoch = max(before.epoch if before else 0, *known) + 1
    # A share that is lost for want of ready pods, and given again, is judged as one: else a canary
    # that crashes as often as it comes up would begin anew each time, and never be found out.
    same = before is not None and before.share in (plan.share, 0)
    counts_on = before is not None and _pair(before) == _pair(plan) and (same or not plan.share)
    counts_on = counts_on and not split.anew
    window = before.window if before and counts_on else epoch
    return plan.model_copy(update={"epoch": epoch, "window": window})


def _pair(plan: TrafficPlan) -> tuple[str, str | None]:
    return plan.stable.revision, plan.canary.revision if plan.canary else None


def _version(seen: Seen, revision: str, address: dict[str, str]) -> Version:
    """What its pods compute is kept while none of them says it."""
    plan = seen.plan
    told = {
        each.revision: each.compute_fp
        for each in (plan.stable, plan.canary if plan else None)
        if each is not None
    } if plan else {}  # fmt: skip
    return Version(
        revision=revision,
        address=address[revision],
        compute_fp=seen.of(revision).compute_fp or told.get(revision),
    )
