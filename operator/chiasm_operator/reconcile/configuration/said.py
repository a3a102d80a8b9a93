"""Conditions, status and events of configuration, from what pods report of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from chiasm_contract import instants
from chiasm_contract.api.environments import Source
from chiasm_contract.api.status import StatusConfig, StatusSource
from chiasm_contract.conditions import ConditionType, Finding, Reason, Truth
from chiasm_contract.configuration import Approval, Approvals, SourceReport
from pydantic import ValidationError

from chiasm_operator.reconcile.configuration.approving import in_use
from chiasm_operator.reconcile.configuration.budget import Roll, too_short
from chiasm_operator.reconcile.configuration.restarting import restarts
from chiasm_operator.reconcile.configuration.seen import RevisionSeen, Seen
from chiasm_operator.reconcile.problems import Event

Rolls = Mapping[str, Roll]


def synced(seen: Seen, approvals: Approvals) -> Finding:
    """Whether every pod uses what there is."""
    kind = ConditionType.CONFIG_SYNCED
    for each in seen.revisions:
        for source in each.environment.sources:
            told = _fault(each, source)
            if told is not None:
                return Finding(kind, Truth.FALSE, *told)
    waiting = [text for each in seen.revisions for text in _waiting(each, approvals)]
    if waiting:
        return Finding(kind, Truth.FALSE, Reason.ROTATION_IN_PROGRESS, waiting[0])
    silent = [pod.name for each in seen.revisions for pod in each.pods if pod.report is None]
    if silent:
        text = f"{len(silent)} pods have not said what they use yet: {silent[0]}."
        return Finding(kind, Truth.UNKNOWN, Reason.NOT_REPORTED, text)
    text = "Every pod uses what its sources have."
    return Finding(kind, Truth.TRUE, Reason.CONFIG_CURRENT, text)


def _where(seen: RevisionSeen, source: Source) -> str:
    return f"Source {source.name!r} of environment {seen.environment.name!r}"


def _fault(seen: RevisionSeen, source: Source) -> tuple[Reason, str] | None:
    """What is wrong with a source, over the pods of one revision."""
    reports = seen.reports(source.name)
    refused = sorted((pod, each.refused) for pod, each in reports.items() if each.refused)
    if refused:
        pod, why = refused[0]
        text = (
            f"{_where(seen, source)}: pod {pod} tried a new value and refused it: {why} What was "
            "in use stays in use; put a value there that works."
        )
        return Reason.CONFIG_NOT_PROVED, text
    faults = [(pod, each) for pod, each in sorted(reports.items()) if each.fault]
    if faults:
        _, report = faults[0]
        since = f" since {_instant(report.fault_since)}" if report.fault_since else ""
        text = (
            f"{_where(seen, source)} cannot be read in {len(faults)} of {len(reports)} pods{since}:"
            f" {report.fault} {_until(reports)}"
        )
        return Reason.CONFIG_UNAVAILABLE, text
    return None


def _until(reports: Mapping[str, SourceReport]) -> str:
    if any(each.id is None for each in reports.values()):
        return "Some pods have no value of it at all; it is tried again and again."
    ends = _first_end(reports)
    if ends is None:
        return "What is in use stays in use; it is tried again and again."
    return f"What is in use holds until {_instant(ends)}; it is tried again and again."


def _first_end(reports: Mapping[str, SourceReport]) -> float | None:
    return min((each.lease.ends for each in reports.values() if each.lease), default=None)


def _instant(seconds: float) -> str:
    return instants.to_text(int(seconds))


def _waiting(seen: RevisionSeen, approvals: Approvals) -> Iterator[str]:
    for source in seen.environment.sources:
        reports = seen.reports(source.name)
        approval = approvals.of(seen.revision, source.name)
        if any(each.restart for each in reports.values()):
            yield f"{_where(seen, source)} changed; pods are replaced for it, a new one first."
        elif not seen.environment.leases(source) and approval is not None:
            behind = sorted(pod for pod, each in reports.items() if each.id != approval.id)
            if approval.prover is not None:
                yield f"{_where(seen, source)}: pod {approval.prover} tries {approval.id} first."
            elif behind:
                yield (
                    f"{_where(seen, source)}: {len(behind)} of {len(reports)} pods have not taken "
                    f"{approval.id} yet: {behind[0]}."
                )
    behind = [pod.name for pod in seen.pods if pod.is_behind(approvals.asked)]
    if behind:
        yield f"{len(behind)} pods have not followed reload-config {approvals.asked!r} yet."


def leases(seen: Seen, rolls: Rolls, now: int) -> Finding | None:
    """Whether leases live long enough, and are renewed; None where there are none."""
    kind = ConditionType.SECRET_LEASE_HEALTHY
    leased = [
        (each, source, pod, report)
        for each in seen.revisions
        for source in each.environment.sources
        for pod, report in sorted(each.reports(source.name).items())
        if report.lease is not None
    ]
    places = [each.environment for each in seen.revisions]
    lending = [place for place in places if any(place.leases(source) for source in place.sources)]
    if not lending:
        return None
    for each, source, pod, report in leased:
        lease = report.lease
        if lease is not None and report.fault and now >= lease.began + lease.ttl_seconds / 2:
            text = (
                f"{_where(each, source)}: the lease of pod {pod} ends at {_instant(lease.ends)} "
                f"and there is no other: {report.fault}"
            )
            return Finding(kind, Truth.FALSE, Reason.LEASE_EXPIRING, text)
    for each, source, _, report in leased:
        roll = rolls[each.revision] if restarts(source) else None
        why = too_short(report.lease, roll) if report.lease else None
        if why:
            text = f"{_where(each, source)}: {why}. Raise the role's max_ttl and default_ttl."
            return Finding(kind, Truth.FALSE, Reason.LEASE_TOO_SHORT, text)
    if not leased and not any(place.asks_itself for place in lending):
        text = (
            f"{lending[0].delivery} holds the leases of environment {lending[0].name!r} and renews "
            "them; when they end is not told to pods. What it brings is proved like all else."
        )
        return Finding(kind, Truth.UNKNOWN, Reason.LEASES_HELD_ELSEWHERE, text)
    if not leased:
        return Finding(kind, Truth.UNKNOWN, Reason.NOT_REPORTED, "No pod has reported a lease yet.")
    text = f"{len(leased)} leases are renewed in time."
    return Finding(kind, Truth.TRUE, Reason.LEASES_RENEWED, text)


def status(
    seen: Seen, approvals: Approvals, before: Mapping[str, Any] | None, roles: tuple[str, str]
) -> StatusConfig | None:
    """`status.config`; `roles` are the present revision and the one that clients reach."""
    by_revision = {each.revision: each for each in seen.revisions}
    present, stable = (by_revision.get(revision) for revision in roles)
    shown = present or stable
    if shown is None:
        return None
    known = {each.name: each for each in _stored(before).sources} if before else {}
    sources = [
        _source(shown, source, approvals.of(shown.revision, source.name), known.get(source.name))
        for source in shown.environment.sources
    ]
    followed = [pod.report for each in seen.revisions for pod in each.pods if pod.report]
    asked = {report.asked for report in followed if report.sources}
    other = stable.environment.name if stable else None
    return StatusConfig(
        environment=shown.environment.name,
        stable_environment=other if other != shown.environment.name else None,
        asked=asked.pop() if len(asked) == 1 else None,
        sources=sources,
    )


def _stored(before: Mapping[str, Any]) -> StatusConfig:
    try:
        return StatusConfig.model_validate(before)
    except ValidationError:
        return StatusConfig(environment="")


def _source(
    seen: RevisionSeen, source: Source, approval: Approval | None, before: StatusSource | None
) -> StatusSource:
    reports = seen.reports(source.name)
    ends = _first_end(reports)
    wanted = approval.id if approval else None
    using = sum(each.id is not None and wanted in (None, each.id) for each in reports.values())
    whole = using == len(seen.pods) and (approval is None or approval.prover is None)
    version, own = before.version if before else None, seen.environment.leases(source)
    if not own and (whole or version is None):
        version = in_use(reports)
    return StatusSource(
        name=source.name,
        version=None if own else version,
        pods=f"{using}/{len(seen.pods)}",
        rotating_to=wanted if not whole and wanted != version else None,
        prover=approval.prover if approval else None,
        lease_ends=None if ends is None else _instant(ends),
    )


def told(before: Mapping[str, Any] | None, after: StatusConfig | None) -> Iterator[Event]:
    """What has been done since the stored status."""
    if not before or after is None:
        return
    stored = _stored(before)
    known = {each.name: each.version for each in stored.sources}
    for source in after.sources:
        old = known.get(source.name)
        if stored.environment == after.environment and old and source.version not in (None, old):
            text = f"Every pod uses {source.version} of source {source.name!r}; it was {old}."
            yield Event(Reason.SECRET_ROTATED, text)
    if after.asked is not None and after.asked != stored.asked:
        text = f"Every pod has followed reload-config {after.asked!r}: new leases, fresh values."
        yield Event(Reason.SECRET_ROTATED, text)
