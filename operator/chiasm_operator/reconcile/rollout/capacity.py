"""How much a revision can bear, and how many pods stand for which share.

    need(share) = ceil(M * share / 10000)     M: pods that must serve

Without steps pods are replaced as a Deployment replaces them, with one condition more: no pod
goes while its share has not been taken from it. Pure arithmetic; knows no objects.
"""

from __future__ import annotations

from dataclasses import dataclass

from chiasm_contract.traffic import WHOLE

from chiasm_operator.reconcile.rollout.seen import Standing


def need(pods: int, share: int) -> int:
    """Pods for `share` of what `pods` pods serve.

    A share is rounded to a hundredth of a per cent; what that makes of a pod asks for no other.
    """
    if share == 0 or pods == 0:
        return 0
    return max(1, -(-pods * (share - 1) // WHOLE))


def bears(pods: int, mine: Standing, other: Standing, share: int) -> bool:
    """Whether the ready pods of one revision can take `share`."""
    if pods == 0:
        return True
    serving = min(pods, mine.ready + other.ready)
    return mine.ready > 0 and need(serving, share) <= mine.ready


def bearable(pods: int, mine: Standing, other: Standing) -> int:
    """The largest share that the ready pods of one revision can bear.

    Where both together are fewer than there should be, each bears what it has of them.
    """
    if pods == 0:
        return WHOLE
    serving = min(pods, mine.ready + other.ready)
    return min(WHOLE, WHOLE * mine.ready // serving) if serving else 0


@dataclass(frozen=True)
class Pace:
    """How fast pods are replaced: as a Deployment's maxSurge and maxUnavailable."""

    replicas: int
    surge: int
    unavailable: int

    @property
    def must_serve(self) -> int:
        """Pods below which a rollout never goes."""
        return max(0, self.replicas - self.unavailable)


def replace(pace: Pace, rise: Standing, fall: Standing, others: int, kept: int) -> tuple[int, int]:
    """Pods of the revision that comes and of the one that goes.

    `others` pods of further revisions count against the surge. `kept` pods of the one that goes
    must stay for the share that it still has.
    """
    room = pace.replicas + pace.surge - fall.replicas - others
    risen = min(pace.replicas, max(rise.replicas, room))
    if rise.replicas > pace.replicas:
        risen = pace.replicas
    removable = rise.ready + fall.replicas - pace.must_serve
    if pace.must_serve == 0:
        removable = fall.replicas
    unready = max(0, fall.replicas - fall.ready)
    cleaned = max(0, min(unready, removable))
    spare = max(0, min(fall.ready, rise.ready + fall.ready - pace.must_serve))
    left = fall.replicas - cleaned - min(spare, max(0, removable - cleaned))
    return risen, min(fall.replicas, max(left, kept))
