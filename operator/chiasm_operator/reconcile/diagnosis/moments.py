"""Times as Kubernetes writes them, and how long ago they were."""

from __future__ import annotations

from datetime import datetime


def seconds_between(earlier: str | None, later: str | None) -> float | None:
    """From one time to the other; None when either is not known."""
    if not earlier or not later:
        return None
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def is_recent(moment: str | None, now: str, limit_seconds: float) -> bool:
    """Whether `moment` was less than that long before `now`."""
    age = seconds_between(moment, now)
    return age is not None and age < limit_seconds
