"""Which value of a source the pods of a revision may take: one pod first, then all.

A pod proves a value before it uses it, whatever is allowed. What one pod goes first for is what no
proof finds. A value that some pod uses already, because it began with it, is allowed at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from chiasm_contract.configuration import Approval, SourceReport


def approve(before: Approval | None, reports: Mapping[str, SourceReport]) -> Approval | None:
    """What is allowed next; `reports` are those of the pods of one revision, by pod."""
    if before is None:
        return _first(reports)
    if before.prover is not None:
        return _proving(before, before.prover, reports)
    return _begun(reports, allowed=before.id) or _still(before, reports)


def in_use(reports: Mapping[str, SourceReport]) -> str | None:
    """The value that most pods use."""
    ids = sorted(each.id for each in reports.values() if each.id is not None)
    return max(ids, key=ids.count, default=None)


def _first(reports: Mapping[str, SourceReport]) -> Approval | None:
    using = in_use(reports)
    return _begun(reports, allowed=None) or (Approval(id=using) if using is not None else None)


def _proving(before: Approval, prover: str, reports: Mapping[str, SourceReport]) -> Approval | None:
    """Its pod has proved the value, has another by now, is still at it, cannot ask, or is gone."""
    report = reports.get(prover)
    if any(each.id == before.id for each in reports.values()):
        return Approval(id=before.id)
    if report is not None and report.fault is not None:
        # It cannot look at the source, so it neither proves the value nor sees another.
        able = {pod: each for pod, each in reports.items() if each.fault is None}
        return _begun(able, allowed=None) or before
    if report is None:
        using = in_use(reports)
        return _begun(reports, allowed=None) or (Approval(id=using) if using else before)
    if report.offered is not None and report.offered != before.id:
        return Approval(id=report.offered, prover=prover)
    if report.offered is None and report.id is not None:
        # It was put back to what is in use.
        return _begun(reports, allowed=report.id) or Approval(id=report.id)
    return before


def _still(before: Approval, reports: Mapping[str, SourceReport]) -> Approval:
    """It stays allowed while a pod uses it: others may have begun with what replaced it."""
    using = {each.id for each in reports.values() if each.id is not None}
    if before.id in using or not using:
        return before
    return Approval(id=in_use(reports) or before.id)


def _last_choice(pod: str, report: SourceReport) -> tuple[bool, bool, str]:
    return report.fault is not None, report.id is None, pod


def _begun(reports: Mapping[str, SourceReport], allowed: str | None) -> Approval | None:
    """The next value that a pod offers and that is not allowed yet; None when there is none."""
    offers = {
        pod: each.offered
        for pod, each in reports.items()
        if each.offered is not None and each.offered != allowed
    }
    if not offers:
        return None
    prover = min(offers, key=lambda pod: _last_choice(pod, reports[pod]))
    offered = offers[prover]
    used = any(each.id == offered for each in reports.values())
    return Approval(id=offered, prover=None if used else prover)
