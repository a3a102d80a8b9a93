"""One decision: stable revision, plan, pods of each revision, and where the rollout is then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from chiasm_contract import instants
from chiasm_contract.api.status import StatusRollout
from chiasm_contract.traffic import WHOLE, TrafficPlan
from chiasm_contract.weights import weight_text

from chiasm_operator.reconcile.analysis import Verdict
from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.reconcile.rollout import forward, leaving, states
from chiasm_operator.reconcile.rollout.actions import act, begun
from chiasm_operator.reconcile.rollout.asked import Asked
from chiasm_operator.reconcile.rollout.capacity import bearable, need
from chiasm_operator.reconcile.rollout.capacity import replace as replaced
from chiasm_operator.reconcile.rollout.planning import Split, planned
from chiasm_operator.reconcile.rollout.roles import Subject, stable_of, subject_of
from chiasm_operator.reconcile.rollout.seen import Seen


@dataclass(frozen=True)
class Decision:
    """What should be.

    Attributes:
        stable: whom the Service for clients selects.
        replicas: of every revision that is to stand; another Deployment goes.
        wake_at: when something is due that no event tells of.
        lagging: pods that clients reach and that do not follow the plan yet.
        routed: Gateways follow the plan, or do not divide.
        renewed: the plan differs from the one that is there.
    """

    stable: str
    plan: TrafficPlan
    replicas: Mapping[str, int]
    rollout: StatusRollout
    notices: tuple[Problem, ...] = ()
    verdict: Verdict | None = None
    wake_at: int | None = None
    lagging: tuple[str, ...] = ()
    routed: bool = True
    short_of_stable: bool = False
    renewed: bool = False

    def unwritten(self, seen: Seen) -> Decision:
        """What to tell where this could not be written: how far what is there has come.

        Told as if it were, each pass would tell another number or time, and be woken by it.
        """
        known, plan = (seen.rollout, seen.plan) if seen.plan else (self.rollout, None)
        update = {
            "state": self.rollout.state,
            "message": self.rollout.message,
            "weight": weight_text(plan.share) if plan else seen.rollout.weight,
            "epoch": plan.epoch if plan else seen.rollout.epoch,
        }
        return replace(self, rollout=known.model_copy(update=update), wake_at=None)


@dataclass(frozen=True)
class _Turn:
    """What one kind of turn asks for, before revisions that leave are looked at."""

    split: Split
    replicas: dict[str, int]
    rollout: StatusRollout
    verdict: Verdict | None = None
    held: bool = False
    whole: bool = False
    short_of_stable: bool = False


def decide(asked: Asked, seen: Seen, address: Callable[[str], str], now: int) -> Decision:
    """The decision at time `now`; the same for the same arguments."""
    stable = stable_of(seen, asked.target)
    canary = asked.target if asked.target != stable else ""
    acted = act(asked, _carried(asked, seen, stable, canary, now), canary)
    rollout = acted.rollout
    subject = subject_of(seen, rollout, stable, asked.target)
    if subject is None:
        turn = _alone(asked, seen, rollout, stable)
    elif subject.back:
        turn = _back(asked, seen, rollout, stable, subject, now)
    else:
        turn = _forward(asked, seen, rollout, stable, now)
    return _decision(asked, seen, turn, address, acted.notices, now)


def _carried(asked: Asked, seen: Seen, stable: str, canary: str, now: int) -> StatusRollout:
    """What is known, for this pair of revisions: another canary begins at the first step."""
    rollout = seen.rollout
    if seen.of(stable).ready and rollout.stable_revision != stable:
        rollout = rollout.model_copy(update={"stable_revision": stable})
    if rollout.aborted_revision not in (None, canary):
        update = {"aborted_revision": None, "abort_message": None}
        rollout = rollout.model_copy(update=update)
    if rollout.canary_revision != canary:
        # The way back to what was stable a moment ago passes no steps.
        known = leaving.warm(rollout, canary, now)
        rollout = begun(rollout, canary).model_copy(update={"promoting": known})
    return rollout


def _alone(asked: Asked, seen: Seen, rollout: StatusRollout, stable: str) -> _Turn:
    """One revision answers everything; it grows only as fast as what it replaced goes."""
    facts, pace = seen.of(stable), asked.pace
    going = _others(seen, rollout, stable)
    pods = asked.replicas
    if going:
        pods = min(pods, max(facts.replicas, pace.replicas + pace.surge - going))
    return _Turn(Split(stable), {stable: pods}, rollout)


def _back(
    asked: Asked, seen: Seen, rollout: StatusRollout, stable: str, subject: Subject, now: int
) -> _Turn:
    """All traffic returns to stable, as fast as stable can bear it; nobody asks the canary."""
    mine, theirs = seen.of(stable), seen.of(subject.revision)
    before = forward.share_of(seen, subject.revision)
    aborted = subject.revision == asked.target
    must = max(1, asked.pace.must_serve)
    # An abort does not wait for every pod of stable; a change of mind has the time.
    enough = aborted and mine.ready and 2 * mine.ready >= asked.replicas
    least = 0 if enough else WHOLE - bearable(must, mine, theirs)
    share = min(before, least, bearable(must, theirs, mine))
    followed = seen.acknowledged(stable, seen.pointer)
    # Its pods make room only where stable needs that to come up.
    makes_room = followed and rollout.rolling and mine.ready < asked.replicas
    kept = need(must, before) if makes_room else theirs.replicas
    others = _others(seen, rollout, stable, subject.revision)
    up, down = replaced(asked.pace, mine, theirs, others, kept)
    up = up if rollout.rolling else asked.replicas
    canary: str | None = subject.revision
    if aborted:
        reached = bool(before or share) or not followed
        rollout, stays = _given_up(asked, rollout, subject.revision, reached, now)
        down = down if reached or stays else 0
        canary = canary if share or (stays and asked.drains) else None
    return _Turn(
        Split(stable, canary, share),
        {stable: up, subject.revision: down},
        rollout,
        short_of_stable=bool(share) and least > 0,
    )


def _given_up(
    asked: Asked, rollout: StatusRollout, canary: str, reached: bool, now: int
) -> tuple[StatusRollout, bool]:
    """The rollout with the time until which an aborted canary's pods stay, and whether they do.

    `reached`: some may still send there, so that their time does not begin.
    """
    item = next((item for item in rollout.leaving if item.revision == canary), None)
    if item is None or item.why != "aborted":
        if reached:
            return rollout, True
        others = [each for each in rollout.leaving if each.revision != canary]
        item = leaving.given_up(asked, canary, now)
        rollout = rollout.model_copy(update={"leaving": [*others, item]})
    return rollout, now < instants.to_seconds(item.until)


def _forward(asked: Asked, seen: Seen, rollout: StatusRollout, stable: str, now: int) -> _Turn:
    """The canary gains traffic; at the end it is the stable revision."""
    way = forward.way(asked, seen, rollout, stable, now)
    rollout = way.rollout
    if rollout.aborted_revision == asked.target:
        turn = _back(asked, seen, rollout, stable, Subject(asked.target, back=True), now)
        return replace(turn, verdict=way.verdict)
    if way.promote:
        rollout = leaving.replaced(asked, rollout, stable, now)
        rollout = begun(rollout, "").model_copy(update={"stable_revision": asked.target})
        return _alone(asked, seen, rollout, asked.target)
    others = _others(seen, rollout, stable, asked.target)
    known = way.share or seen.of(asked.target).ready or forward.planned_canary(seen, asked.target)
    return _Turn(
        Split(stable, asked.target if known else None, way.share, way.mirror, way.anew),
        forward.pods(asked, seen, way, stable, others),
        rollout,
        way.verdict,
        way.held,
        way.whole,
    )


def _decision(
    asked: Asked,
    seen: Seen,
    turn: _Turn,
    address: Callable[[str], str],
    notices: tuple[Problem, ...],
    now: int,
) -> Decision:
    split, rollout = turn.split, turn.rollout
    revisions = {split.stable, *([split.canary] if split.canary else ())}
    plan = planned(asked, seen, split, {name: address(name) for name in revisions})
    written = replace(seen, plan=plan)
    lagging = written.lagging(split.stable, seen.pointer)
    followed = written.acknowledged(split.stable, seen.pointer)
    free = plan == seen.plan and seen.pointer == split.stable and followed
    rest = leaving.left(asked, seen, rollout, set(turn.replicas), free, now)
    own = [item for item in rollout.leaving if item.revision in turn.replicas]
    own = [item for item in own if item.why == "aborted"]
    rollout = rollout.model_copy(
        update={
            "leaving": [*rest.leaving, *own],
            "weight": weight_text(plan.share),
            "epoch": plan.epoch,
        }
    )
    replicas = {**turn.replicas, **rest.replicas}
    told = states.described(
        states.Moment(asked, seen, rollout, plan, lagging, turn.held, turn.whole)
    )
    return Decision(
        stable=split.stable,
        plan=plan,
        replicas=replicas,
        rollout=told,
        notices=notices,
        verdict=turn.verdict,
        wake_at=_wake(told, now),
        lagging=lagging,
        routed=written.routed,
        short_of_stable=turn.short_of_stable,
        renewed=plan != seen.plan,
    )


def _wake(rollout: StatusRollout, now: int) -> int | None:
    due = [
        instants.to_seconds(text)
        for text in (
            rollout.step_deadline,
            rollout.next_look,
            *(item.until for item in rollout.leaving),
        )
        if text is not None
    ]
    return min((at for at in due if at > now), default=None)


def _is_warm(rollout: StatusRollout, revision: str) -> bool:
    return any(item.revision == revision and item.why == "warm" for item in rollout.leaving)


def _others(seen: Seen, rollout: StatusRollout, *but: str) -> int:
    """Pods of all other revisions that are not kept warm."""
    return sum(
        each.replicas
        for revision, each in seen.standing.items()
        if revision not in but and not _is_warm(rollout, revision)
    )
