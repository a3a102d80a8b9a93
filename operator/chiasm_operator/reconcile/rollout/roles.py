"""Who is stable, and whose share the plan speaks of.

The Service for clients points at the stable revision, and a promotion writes the plan before it
moves the Service: between the two writes the plan is right. A plan whose stable revision has no
ready pods is not believed; so an old copy of it sends nobody anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from chiasm_contract.api.status import StatusRollout

from chiasm_operator.reconcile.rollout.seen import Seen


def stable_of(seen: Seen, target: str) -> str:
    """The revision that clients reach; of a new resource the one that is asked for."""
    planned = seen.plan.stable.revision if seen.plan else None
    if planned and seen.of(planned).ready:
        return planned
    for known in (seen.pointer, planned, seen.rollout.stable_revision):
        if known and known in seen.standing:
            return known
    serving = [(facts.ready, name) for name, facts in seen.standing.items() if facts.ready]
    return max(serving)[1] if serving else target


@dataclass(frozen=True)
class Subject:
    """The revision beside the stable one; `back` when it is to lose its share."""

    revision: str
    back: bool


def subject_of(seen: Seen, rollout: StatusRollout, stable: str, target: str) -> Subject | None:
    """Who it is. One that is no longer asked for gives its share back before the next begins."""
    canary = seen.plan.canary if seen.plan else None
    if seen.plan and canary and canary.revision not in (stable, target):
        entries = (stable, seen.pointer)
        if seen.plan.share or not seen.acknowledged(*entries):
            return Subject(canary.revision, back=True)
    if target == stable:
        return None
    return Subject(target, back=rollout.aborted_revision == target)
