"""Leases: whether they live long enough, until when they hold, and when pods are replaced."""

from __future__ import annotations

from typing import Any

import pytest
from chiasm_contract.api.environments import Environment
from chiasm_contract.conditions import Reason, Truth
from chiasm_contract.configuration import Approvals, ConfigReport, LeaseReport, SourceReport
from chiasm_operator.reconcile.configuration import restarting, said
from chiasm_operator.reconcile.configuration.budget import Roll, restart_at, too_short
from chiasm_operator.reconcile.configuration.seen import PodSeen, RevisionSeen, Seen
from hypothesis import given
from hypothesis import strategies as st

NOW = 1_800_000_000
VAULT = {"address": "http://bao:8200", "auth": {"role": "reader"}}


def environment(change: str = "reload", **vault: Any) -> Environment:
    source = {
        "name": "store",
        "database": {"mount": "database", "role": "store"},
        "onChange": change,
    }
    return Environment.model_validate(
        {"name": "prod", "vault": {**VAULT, **vault}, "sources": [source]}
    )


def lease(began: float = 0, ttl: float = 3600) -> LeaseReport:
    start = NOW + began
    return LeaseReport(
        began=start, expires=start + ttl, ends=start + ttl, ttl_seconds=ttl, renewable=True
    )


def seen(*reports: SourceReport, change: str = "reload", **vault: Any) -> Seen:
    pods = tuple(
        PodSeen(f"pod-{i}", ConfigReport(environment="prod", sources=(each,)), 20)
        for i, each in enumerate(reports)
    )
    return Seen((RevisionSeen("v1-1", environment(change, **vault), pods),))


def report(**more: Any) -> SourceReport:
    return SourceReport(name="store", leased=True, id="lease-1", **more)


ROLL = Roll(replicas=2, surge=1, load_seconds=20, drain_seconds=5)


def judged(state: Seen, now: int = NOW) -> tuple[Truth, Reason, str]:
    found = said.leases(state, {"v1-1": ROLL}, now)
    assert found is not None
    return found.status, found.reason, found.message


def test_leases_that_are_renewed_are_well() -> None:
    status, reason, text = judged(seen(report(lease=lease()), report(lease=lease())))
    assert (status, reason) == (Truth.TRUE, Reason.LEASES_RENEWED)
    assert text.startswith("2 leases")


def test_before_any_pod_has_one_nothing_is_known() -> None:
    assert judged(seen(SourceReport(name="store", leased=True)))[:2] == (
        Truth.UNKNOWN,
        Reason.NOT_REPORTED,
    )


@pytest.mark.parametrize("delivery", ["agent", "injector", "csi"])
def test_leases_that_somebody_else_holds_are_said_to_be(delivery: str) -> None:
    status, reason, text = judged(seen(SourceReport(name="store"), delivery=delivery))
    assert (status, reason) == (Truth.UNKNOWN, Reason.LEASES_HELD_ELSEWHERE)
    assert text.startswith(f"{delivery} holds the leases of environment 'prod'")


def test_a_lease_without_a_successor_is_told_with_its_end() -> None:
    state = seen(report(lease=lease(-2000), fault="The server is sealed."))
    status, reason, text = judged(state)
    assert (status, reason) == (Truth.FALSE, Reason.LEASE_EXPIRING)
    assert "The server is sealed." in text
    assert "2027-01-15T08:26:40Z" in text


def test_a_fault_early_in_a_lease_is_no_danger_yet() -> None:
    assert judged(seen(report(lease=lease(), fault="It is sealed.")))[0] is Truth.TRUE


@pytest.mark.parametrize(("change", "ttl"), [("reload", 10), ("restart", 100)])
def test_a_lease_that_is_too_short_is_told_before_it_hurts(change: str, ttl: int) -> None:
    state = seen(report(lease=lease(ttl=ttl)), change=change)
    status, reason, text = judged(state)
    assert (status, reason) == (Truth.FALSE, Reason.LEASE_TOO_SHORT)
    assert f"{ttl} s" in text
    assert "max_ttl" in text


def test_what_is_long_enough_to_reload_may_be_too_short_to_restart() -> None:
    assert too_short(lease(ttl=100), None) is None
    assert too_short(lease(ttl=100), ROLL) is not None


@given(
    st.integers(1, 50), st.integers(1, 10), st.integers(0, 600), st.integers(0, 60),
    st.integers(1, 100_000),
)  # fmt: skip
def test_pods_are_replaced_in_time(
    replicas: int, surge: int, load: int, drain: int, ttl: int
) -> None:
    roll = Roll(replicas, surge, load, drain)
    mine = lease(ttl=ttl)
    at = restart_at(mine, roll)
    assert at <= mine.began + ttl * 2 / 3
    assert at >= mine.began + ttl / 3, "new pods are not replaced again at once"
    if too_short(mine, roll) is None:
        assert at + roll.seconds <= mine.ends


def test_pods_are_replaced_only_where_the_source_says_so_and_only_when_it_is_time() -> None:
    old = report(lease=lease(-3000))
    (reload,) = seen(old).revisions
    (restart,) = seen(old, change="restart").revisions
    (fresh,) = seen(report(lease=lease()), change="restart").revisions
    assert restarting.stamp(reload, ROLL, NOW, None) is None
    assert restarting.stamp(fresh, ROLL, NOW, None) is None
    assert restarting.stamp(restart, ROLL, NOW, None) is not None


def test_a_server_that_cannot_be_asked_is_told_with_what_holds_until_when() -> None:
    state = seen(report(lease=lease(), fault="It is sealed.", fault_since=NOW))
    found = said.synced(state, Approvals())
    assert (found.status, found.reason) == (Truth.FALSE, Reason.CONFIG_UNAVAILABLE)
    assert "holds until 2027-01-15T09:00:00Z" in found.message
    assert "1 of 1 pods" in found.message
