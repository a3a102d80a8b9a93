"""What to do about a source next. Pure: clock readings and chance are arguments.

A value that all pods share:

    nothing in use                      -> take what is proved
    offered, allowed to this pod        -> take what is proved
    offered, not allowed                -> wait, unless what is in use has failed its proof

A lease, which is the pod's own:

    2/3 of what was granted have passed -> renew
    the server gives no longer          -> another lease, at 2/3 of what is left, and with at least
                                           1/3 of the whole left if there still is
    pods are replaced for it            -> another lease only where that comes too late
    lost                                -> another lease now
    new ones are asked for              -> another lease now; until then this one is renewed
    another one is there                -> prove it; proved: in use. The old one ends behind it.

Times are seconds of any steady clock. Must not know: clocks, files, the server.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

from chiasm_contract.configuration import Approval

_PART = 2 / 3
_LAST_PART = 1 / 10
# Servers count whole seconds, and answers take time.
_ROUNDING_SECONDS = 2.0


class Share(Enum):
    """What to do about an offer of a value that pods share."""

    NOTHING = "it is in use"
    PROVE = "prove it, then take it"
    DOUBT = "wait; prove what is in use, and the offer only if that fails"


def may_take(approval: Approval | None, offered: str, pod: str) -> bool:
    """Whether the operator lets this pod take the offered value."""
    return (
        approval is not None
        and approval.id == offered
        and (approval.prover is None or approval.prover == pod)
    )


def share(current: str | None, offered: str, allowed: bool) -> Share:
    """What to do about an offer."""
    if current == offered:
        return Share.NOTHING
    return Share.PROVE if current is None or allowed else Share.DOUBT


@dataclass(frozen=True)
class Lease:
    """Attributes:
    began: when it was made.
    granted: when it was granted last: made or renewed.
    expires: when it ends if nothing renews it.
    ends: when it ends whatever is done.
    asked_seconds: how long it is asked for at each renewal.
    renewable: whether the server renews it.
    chance: 0 to 1, drawn once; by it pods differ.
    """

    began: float
    granted: float
    expires: float
    ends: float
    asked_seconds: float
    renewable: bool
    chance: float = 0.0

    @property
    def capped(self) -> bool:
        """Whether no renewal gives it more."""
        return not self.renewable or self.expires >= self.ends - _ROUNDING_SECONDS


def renewed(lease: Lease, now: float, seconds: float) -> Lease:
    """The lease after the server granted so many seconds; less than asked: that is its end."""
    expires = now + seconds
    short = seconds < lease.asked_seconds - _ROUNDING_SECONDS
    ends = expires if short else max(lease.ends, expires)
    return replace(lease, granted=now, expires=expires, ends=ends)


def due(lease: Lease, jitter: float) -> float:
    """When to renew it, or to get another if it is capped; always before it expires."""
    left = lease.expires - lease.granted
    at = lease.granted + left * _PART * (1 - jitter * lease.chance)
    if lease.capped:
        latest = lease.ends - (lease.ends - lease.began) / 3
        at = min(at, latest)
    return max(at, lease.granted)


def last_moment(lease: Lease) -> float:
    """When to get another if nobody has replaced the pod."""
    return max(lease.granted, lease.ends - (lease.ends - lease.began) * _LAST_PART)


class Step(Enum):
    """What to do about a lease."""

    REPLACE = "ask for another"
    RENEW = "renew it"
    PROVE = "prove the other one"
    DROP = "end the other one, which is not proved in its time"
    CHECK = "prove what is in use"


@dataclass(frozen=True)
class Leased:
    """All that decides about a leased source.

    Attributes:
        current: in use; None: nothing.
        other: made and not in use yet.
        lost: the one in use is gone, or about to be.
        asked: another one is asked for, and the one in use is good until there is one.
        replaced: pods are replaced in time where nothing is in the way.
        ask_at: before that the server is asked for no other one.
        renew_at: before that it is not asked to renew.
        prove_at: before that `other` is not proved again.
        check_at: when what is in use is proved again.
        jitter: the part of a time that chance may take off.
    """

    current: Lease | None = None
    other: Lease | None = None
    lost: bool = False
    asked: bool = False
    replaced: bool = False
    ask_at: float = -math.inf
    renew_at: float = -math.inf
    prove_at: float = -math.inf
    check_at: float = math.inf
    jitter: float = 0.1


def next_step(view: Leased) -> tuple[Step, float]:
    """What comes next, and when."""
    steps = [(view.check_at, Step.CHECK)] if view.current is not None else []
    lease = view.current
    renewing = lease is not None and not view.lost and not lease.capped
    if lease is not None and renewing:
        at = max(due(lease, view.jitter), view.renew_at)
        if at < lease.expires:
            steps.append((at, Step.RENEW))
        else:
            renewing = False
    if view.other is not None:
        ends = due(view.other, view.jitter)
        steps.append((view.prove_at, Step.PROVE) if view.prove_at < ends else (ends, Step.DROP))
    elif lease is None or view.lost or view.asked:
        steps.append((view.ask_at, Step.REPLACE))
    elif not renewing:
        at = last_moment(lease) if view.replaced else due(lease, view.jitter)
        steps.append((max(at, view.ask_at), Step.REPLACE))
    at, step = min(steps, key=lambda each: each[0])
    return step, at


def backoff(num_faults: int, first: float, longest: float, chance: float) -> float:
    """The pause after so many faults in a row: anything up to twice the last bound, by chance."""
    bound = min(longest, first * 2.0 ** min(num_faults - 1, 16))
    return float(bound * chance)
