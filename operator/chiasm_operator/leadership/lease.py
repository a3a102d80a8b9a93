"""A Lease as it is stored, and what to do about it.

The epoch of a leader is the number of transitions that its lease counts: it grows with every
leader, a restarted one included. Whether a holder is gone is judged by how long its lease has not
changed on *our* clock; the times in it are for people.

Must not know: clocks (times are arguments), Kubernetes clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chiasm_operator.resource import Manifest


@dataclass(frozen=True)
class Lease:
    """What a stored Lease says."""

    holder: str
    transitions: int
    seconds: int
    version: str


def parse(stored: Manifest) -> Lease:
    """The Lease in a manifest; one that nobody has filled yet has no holder."""
    spec = stored.get("spec") or {}
    return Lease(
        holder=spec.get("holderIdentity") or "",
        transitions=spec.get("leaseTransitions") or 0,
        seconds=spec.get("leaseDurationSeconds") or 0,
        version=stored["metadata"].get("resourceVersion", ""),
    )


def may_take(lease: Lease, identity: str, unchanged_seconds: float) -> bool:
    """Whether the candidate `identity`, which does not lead, takes the lease now.

    An identity is one seat, in Kubernetes a pod's name: whoever finds itself as the holder without
    leading is the next life of a process that has ended, and need not wait for it.
    """
    return lease.holder in ("", identity) or unchanged_seconds >= lease.seconds


def held(identity: str, epoch: int, seconds: int, now: str, since: str) -> dict[str, Any]:
    """`spec` of a lease that `identity` holds."""
    return {
        "holderIdentity": identity,
        "leaseDurationSeconds": seconds,
        "leaseTransitions": epoch,
        "acquireTime": since,
        "renewTime": now,
    }


def released(epoch: int, now: str) -> dict[str, Any]:
    """`spec` of a lease that its holder gave back; the count goes on from there."""
    return {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "leaseTransitions": epoch,
        "renewTime": now,
    }
