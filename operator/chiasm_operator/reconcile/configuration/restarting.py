"""Which pods are replaced because a value changed that none takes up while it runs.

What pods were last replaced for stands on their template; another value there replaces them, a new
one first, and nothing is written while that is under way. Each value there is made from the one
before: what pods ask for that all have the template is something new, even if it was asked for
before, as when a value was tried, put back, and is tried again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from chiasm_contract.api.environments import Source

from chiasm_operator.reconcile.configuration.budget import Roll, restart_at
from chiasm_operator.reconcile.configuration.seen import RevisionSeen


def restarts(source: Source) -> bool:
    """Whether a changed value of a source replaces pods."""
    return source.on_change == "restart" or any(each.on_change == "restart" for each in source.keys)


def stamp(seen: RevisionSeen, roll: Roll, now: int, before: str | None) -> str | None:
    """What the template is to say so that pods are replaced; None: nothing asks for it.

    `before` is what it says, of all of the pods.
    """
    wanted: Mapping[str, list[str]] = {
        source.name: found
        for source in seen.environment.sources
        if restarts(source) and (found := sorted(set(_wanted(seen, source, roll, now))))
    }
    if not wanted:
        return None
    text = json.dumps([before, wanted], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _wanted(seen: RevisionSeen, source: Source, roll: Roll, now: int) -> Iterator[str]:
    leased = seen.environment.leases(source)
    for pod, report in seen.reports(source.name).items():
        if report.restart is not None:
            yield report.restart
        elif leased and report.lease is not None and now >= restart_at(report.lease, roll):
            yield f"{pod} {report.id}"
