"""From what a sidecar knows of its pod to findings: probes, time-outs, leases.

Only what cannot be a busy moment is a finding: a state that the sidecar holds, a wait that was too
long three times in a row, a lease that is over by the clock.

Pure; must not know: connections, clocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from chiasm_contract.checkup import CheckupReport, Finding, Look, Severity
from chiasm_contract.configuration import SourceReport
from chiasm_contract.messages import PodState

# As in the alerts: what a source lacks for five minutes somebody should look at, and a lease that
# nobody can renew is urgent ten minutes before its end.
_FAULT_SECONDS = 300.0
_URGENT_SECONDS = 600.0
# Of requests, from this many on, that the worker kept waiting too long.
_MANY_TIMEOUTS = 3
_TIMEOUT_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class PodReadings:
    """What a sidecar knows.

    Attributes:
        now: seconds since 1970.
        waits_seconds: of questions to the worker, one after the other; empty: it could not be
            asked.
        worker_timeout_seconds: after which such a question is given up.
        num_requests: that ended since start, and of those how many the worker did not answer in
            time.
        open_breakers: tiers that are left alone now.
    """

    now: float
    state: PodState
    waits_seconds: tuple[float, ...] = ()
    worker_timeout_seconds: float = 5.0
    num_requests: int = 0
    num_timeouts: int = 0
    open_breakers: tuple[str, ...] = ()
    is_draining: bool = False
    tier_failures: Mapping[str, int] = field(default_factory=dict)


def report(readings: PodReadings) -> CheckupReport:
    """The sidecar's report."""
    state, sources = readings.state, readings.state.configuration.sources
    leased = sum(source.lease is not None for source in sources)
    waits = readings.waits_seconds
    return CheckupReport(
        looks=(
            Look(
                check="probes",
                words=f"{state.reason}" + (", draining" if readings.is_draining else ""),
            ),
            Look(
                check="timeouts",
                taken=bool(waits),
                words=f"the worker answers in {min(waits):.3f} s of "
                f"{readings.worker_timeout_seconds:g} allowed; {readings.num_timeouts} of "
                f"{readings.num_requests} requests timed out"
                if waits
                else "the worker did not answer",
            ),
            Look(check="leases", words=f"{len(sources)} sources, {leased} leases"),
        ),
        findings=(*_probes(readings), *_timeouts(readings), *_leases(readings)),
    )


def _probes(readings: PodReadings) -> Iterator[Finding]:
    state = readings.state
    if not state.ready:
        yield Finding(
            check="probes",
            severity="critical",
            what=f"The pod takes no requests ({state.reason}): {state.message}",
            where="the sidecar's readiness",
            how_bad="no request is answered here",
            what_to_do="Mend what the message names; the sidecar looks again by itself.",
        )
    for fault in state.tier_faults:
        yield Finding(
            check="probes",
            severity="warning",
            what=f"A memory tier is not open: {fault}",
            where="the sidecar's tiers",
            how_bad="its blocks are computed again",
            what_to_do="Mend what is named; the sidecar tries again by itself.",
        )
    if state.traffic.problem is not None:
        yield Finding(
            check="probes",
            severity="warning",
            what=f"The newest traffic plan cannot be followed: {state.traffic.problem}",
            where="the sidecar's traffic plan",
            how_bad="the plan from before stays in force",
            what_to_do="Look at the operator's log: it writes the plan.",
        )


def _timeouts(readings: PodReadings) -> Iterator[Finding]:
    waits, allowed = readings.waits_seconds, readings.worker_timeout_seconds
    if waits and min(waits) > allowed / 2:
        yield Finding(
            check="timeouts",
            severity="warning",
            what=f"The worker answers a plain question in {min(waits):.1f} s at best.",
            where="between sidecar and worker",
            how_bad=f"{allowed:g} s are allowed; a little more, and the pod is taken for dead",
            what_to_do="Give the pod more processor time, or raise CHIASM_WORKER_TIMEOUT_SECONDS.",
        )
    timeouts, requests = readings.num_timeouts, readings.num_requests
    if timeouts >= _MANY_TIMEOUTS and timeouts > _TIMEOUT_SHARE * requests:
        yield Finding(
            check="timeouts",
            severity="warning",
            what=f"{timeouts} of {requests} requests were given up: the worker was too slow.",
            where="between sidecar and worker",
            how_bad=f"{timeouts / max(1, requests):.1%} of requests since the sidecar began",
            what_to_do="Lower spec.engine.maxWaitingRequests so that waiting is refused sooner, "
            "add replicas, or raise spec.config.requestTimeoutSeconds.",
        )
    for tier in readings.open_breakers:
        failures = readings.tier_failures.get(tier, 0)
        yield Finding(
            check="timeouts",
            severity="warning",
            what=f"The {tier} tier is left alone, because it failed or was slow several times.",
            where=f"the sidecar's {tier} tier",
            how_bad=f"its blocks are computed again; {failures} calls failed since start",
            what_to_do="See whether it can be reached and has room; it is tried again by itself.",
        )


def _leases(readings: PodReadings) -> Iterator[Finding]:
    for source in readings.state.configuration.sources:
        left = None if source.lease is None else source.lease.expires - readings.now
        where = f"source {source.name}"
        if left is not None and left <= 0:
            yield Finding(
                check="leases",
                severity="critical",
                what=f"The lease of {where} ended {-left:.0f} s ago.",
                where=where,
                how_bad="what it opens refuses this pod"
                + (f"; asking for another failed: {source.fault}" if source.fault else ""),
                what_to_do="See why the server gives no other one (docs/configuration.md), or set "
                "the annotation reload-config to ask at once.",
            )
        elif source.fault is not None and _lasts(source, readings.now):
            yield _faulty(source, left)
        if source.refused is not None:
            yield Finding(
                check="leases",
                severity="warning",
                what=f"A new value of {where} does not work: {source.refused}",
                where=where,
                how_bad="what was in use stays in use",
                what_to_do="Put a value there that works.",
            )


def _lasts(source: SourceReport, now: float) -> bool:
    return source.fault_since is not None and now - source.fault_since >= _FAULT_SECONDS


def _faulty(source: SourceReport, left: float | None) -> Finding:
    is_urgent = left is not None and left < _URGENT_SECONDS
    severity: Severity = "critical" if is_urgent else "warning"
    return Finding(
        check="leases",
        severity=severity,
        what=f"Source {source.name} cannot be asked: {source.fault}",
        where=f"source {source.name}",
        how_bad="what is in use stays"
        + ("" if left is None else f"; its lease ends in {left:.0f} s"),
        what_to_do="See whether the server can be reached and lets this pod in "
        "(docs/configuration.md).",
    )
