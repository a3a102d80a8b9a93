"""What a sidecar finds: a state that holds, waits that were too long, leases that are over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from chiasm_contract.configuration import ConfigReport, LeaseReport, SourceReport
from chiasm_contract.messages import PodState
from chiasm_contract.traffic import TrafficReport
from chiasm_sidecar.checkup.judging import PodReadings, report
from hypothesis import given
from hypothesis import strategies as st

NOW = 1_800_000_000.0


def state(**changes: Any) -> PodState:
    plain = {"ready": True, "reason": "Ready", "message": "well", "model_id": "demo"}
    return PodState.model_validate(plain | changes)


def lease(left_seconds: float) -> LeaseReport:
    return LeaseReport(
        began=NOW - 3600, expires=NOW + left_seconds, ends=NOW + 9e5, ttl_seconds=9e5,
        renewable=True,
    )  # fmt: skip


def with_source(**fields: Any) -> PodState:
    source = SourceReport(name="app", id="v1", **fields)
    return state(configuration=ConfigReport(environment="prod", sources=(source,)))


SOUND = PodReadings(now=NOW, state=state(), waits_seconds=(0.01, 0.02, 0.01), num_requests=1000)


@given(
    waits=st.lists(st.floats(0, 4), min_size=2, max_size=2), requests=st.integers(0, 10**6),
    left=st.floats(1, 1e6), since=st.floats(0, 299),
)  # fmt: skip
def test_a_sound_pod_has_no_finding(
    waits: list[float], requests: int, left: float, since: float
) -> None:
    """One slow answer of three, a fault of a moment, and a lease that lives are nothing wrong."""
    sources = with_source(lease=lease(left), fault="slow", fault_since=NOW - since)
    told = report(
        replace(
            SOUND,
            state=sources,
            waits_seconds=(*waits, 0.1),
            num_requests=requests,
            num_timeouts=min(2, requests),
        )
    )
    assert told.findings == ()
    assert told.missed == ()


FAULTS: dict[str, tuple[str, str, PodReadings]] = {
    "not ready": ("probes", "critical", replace(
        SOUND, state=state(ready=False, reason="WorkerUnavailable", message="gone"))),
    "a tier": ("probes", "warning", replace(SOUND, state=state(tier_faults=("disk: full",)))),
    "a plan": ("probes", "warning", replace(
        SOUND, state=state(traffic=TrafficReport(problem="no such revision")))),
    "a slow worker": ("timeouts", "warning", replace(SOUND, waits_seconds=(3.0, 2.6, 4.0))),
    "requests given up": ("timeouts", "warning", replace(SOUND, num_timeouts=30)),
    "a breaker": ("timeouts", "warning", replace(SOUND, open_breakers=("valkey",))),
    "a lease that ended": ("leases", "critical", replace(
        SOUND, state=with_source(lease=lease(-5), fault="403", fault_since=NOW - 900))),
    "a lease that will end": ("leases", "critical", replace(
        SOUND, state=with_source(lease=lease(500), fault="503", fault_since=NOW - 900))),
    "a lease for hours": ("leases", "warning", replace(
        SOUND, state=with_source(lease=lease(9000), fault="503", fault_since=NOW - 900))),
    "a source": ("leases", "warning", replace(
        SOUND, state=with_source(fault="503", fault_since=NOW - 900))),
    "a refused value": ("leases", "warning", replace(SOUND, state=with_source(refused="no user"))),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_one_finding(name: str) -> None:
    check, severity, readings = FAULTS[name]
    [finding] = report(readings).findings
    assert (finding.check, finding.severity) == (check, severity)
    assert all((finding.what, finding.where, finding.how_bad, finding.what_to_do))


def test_a_worker_that_does_not_answer_is_not_seen() -> None:
    told = report(replace(SOUND, waits_seconds=()))
    assert [look.check for look in told.missed] == ["timeouts"]
