"""Whether a lease lives long enough for what has to happen in its time."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from chiasm_contract.configuration import LeaseReport

# What a pod is given to come up before any has been seen to.
_UNKNOWN_LOAD_SECONDS = 120
_MARGIN_SECONDS = 30
# A pod asks for new credentials at two thirds, proves them, and ends its work with the old ones.
LEAST_RELOAD_SECONDS = 15


@dataclass(frozen=True)
class Roll:
    """How long it takes to replace all pods of a revision, a new one first."""

    replicas: int
    surge: int
    load_seconds: int | None
    drain_seconds: int

    @property
    def seconds(self) -> int:
        """All of it."""
        load = _UNKNOWN_LOAD_SECONDS if self.load_seconds is None else self.load_seconds
        rounds = ceil(self.replicas / max(1, self.surge))
        return load * max(1, rounds) + self.drain_seconds + _MARGIN_SECONDS


def restart_at(lease: LeaseReport, roll: Roll) -> float:
    """When pods must begin to be replaced, so that the last still has its lease then.

    Where a lease is too short for that, not before a third of it: new pods would be replaced as
    soon as they are there, for ever.
    """
    third = lease.ttl_seconds / 3
    return lease.began + min(2 * third, max(third, lease.ttl_seconds - roll.seconds))


def too_short(lease: LeaseReport, roll: Roll | None) -> str | None:
    """Why a lease cannot be lived with; `roll` None: its values are taken up while pods run."""
    if roll is None:
        if lease.ttl_seconds >= LEAST_RELOAD_SECONDS:
            return None
        return (
            f"a lease lives {lease.ttl_seconds:.0f} s, and to take up a new one takes up to "
            f"{LEAST_RELOAD_SECONDS} s"
        )
    # New pods begin with a lease of their own, which must outlive the next roll as well.
    if lease.ttl_seconds >= 2 * roll.seconds:
        return None
    return (
        f"a lease lives {lease.ttl_seconds:.0f} s, and to replace {roll.replicas} pods takes about "
        f"{roll.seconds} s, of which it must live twice as long"
    )
