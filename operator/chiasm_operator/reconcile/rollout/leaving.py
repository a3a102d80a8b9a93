"""Revisions without traffic whose pods still stand: until their answers end, or kept warm."""

from __future__ import annotations

from dataclasses import dataclass

from chiasm_contract import instants
from chiasm_contract.api.status import LeavingRevision, StatusRollout

from chiasm_operator.reconcile.rollout.asked import Asked
from chiasm_operator.reconcile.rollout.seen import Seen


@dataclass(frozen=True)
class Left:
    """Pods that those revisions keep, and what is known of them."""

    replicas: dict[str, int]
    leaving: list[LeavingRevision]


def warm(rollout: StatusRollout, revision: str, now: int) -> bool:
    """Whether a revision is kept for a way back."""
    return any(
        item.revision == revision and item.why == "warm" and now < instants.to_seconds(item.until)
        for item in rollout.leaving
    )


def replaced(asked: Asked, rollout: StatusRollout, revision: str, now: int) -> StatusRollout:
    """The rollout behind a promotion over `revision`, which is kept warm where that is asked."""
    window = asked.policy.rollback_window
    others = [item for item in rollout.leaving if item.revision != revision]
    if window is None:
        return rollout.model_copy(
            update={"leaving": [*others, drain(asked, rollout, revision, now)]}
        )
    kept = LeavingRevision(
        revision=revision, until=instants.to_text(now + window.seconds), why="warm"
    )
    # The latest stay warm; those beyond `revisions` go now.
    old_warm = [item for item in others if item.why == "warm"]
    too_many = old_warm[: max(0, len(old_warm) - (window.revisions - 1))]
    rest = [item for item in others if item not in too_many]
    gone = [drain(asked, rollout, item.revision, now) for item in too_many]
    return rollout.model_copy(update={"leaving": [*gone, *rest, kept]})


def drain(asked: Asked, rollout: StatusRollout, revision: str, now: int) -> LeavingRevision:
    """Until the last answer has ended; pods that are replaced one by one end theirs themselves."""
    seconds = 0 if rollout.rolling else asked.request_seconds
    return LeavingRevision(revision=revision, until=instants.to_text(now + seconds), why="drain")


def given_up(asked: Asked, revision: str, now: int) -> LeavingRevision:
    """An aborted canary; with `onAbort: drain` its conversations may go on first."""
    policy = asked.policy
    seconds = policy.abort.scale_down_delay_seconds
    if asked.drains:
        seconds = max(seconds, policy.sticky.ttl_seconds)
    return LeavingRevision(revision=revision, until=instants.to_text(now + seconds), why="aborted")


def left(
    asked: Asked, seen: Seen, rollout: StatusRollout, busy: set[str], free: bool, now: int
) -> Left:
    """What becomes of every revision that is not in `busy`; `free`: none has traffic any more."""
    known = {item.revision: item for item in rollout.leaving}
    replicas, leaving = {}, []
    for item in rollout.leaving:  # in their order: the latest is last
        if item.revision not in seen.standing or item.revision in busy:
            continue
        leaving.append(item)
    for revision in seen.standing:
        if revision not in busy and revision not in known:
            leaving.append(drain(asked, rollout, revision, now))
    for item in leaving:
        replicas[item.revision] = _pods(asked, seen, item, free, now)
    # One without pods is forgotten when its window is over; its Deployment goes because nobody
    # names it any more.
    gone = {
        revision
        for revision, pods in replicas.items()
        if pods == 0
        and not seen.of(revision).pods
        and not seen.of(revision).replicas
        and not warm(rollout, revision, now)
    }
    return Left(
        {revision: pods for revision, pods in replicas.items() if revision not in gone},
        [item for item in leaving if item.revision not in gone],
    )


def _pods(asked: Asked, seen: Seen, item: LeavingRevision, free: bool, now: int) -> int:
    standing = seen.of(item.revision).replicas
    over = now >= instants.to_seconds(item.until)
    if not free:
        return standing
    if item.why == "warm":
        return 0 if over else asked.warm_replicas
    ended = item.why == "drain" and not seen.in_flight(item.revision)
    return 0 if over or ended else standing
