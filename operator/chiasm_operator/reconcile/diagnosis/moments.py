"""Times as Kubernetes writes them, and how long ago they were; no clock is read."""

from __future__ import annotations

import re

from chiasm_contract import instants

_FRACTION = re.compile(r"\.\d+(?=Z$)")


def _seconds(moment: str | None) -> int | None:
    try:
        return instants.to_seconds(_FRACTION.sub("", moment or ""))
    except ValueError:
        return None


def seconds_between(earlier: str | None, later: str | None) -> float | None:
    """From one time to the other; None when either is not known."""
    began, ended = _seconds(earlier), _seconds(later)
    return None if began is None or ended is None else float(ended - began)


def is_recent(moment: str | None, now: str, limit_seconds: float) -> bool:
    """Whether `moment` was less than that long before `now`."""
    age = seconds_between(moment, now)
    return age is not None and age < limit_seconds
