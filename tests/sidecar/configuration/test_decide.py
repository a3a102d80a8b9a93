"""When a lease is renewed or replaced, and who may take a value: for all times and chances."""

from __future__ import annotations

import math

from chiasm_contract.configuration import Approval
from chiasm_sidecar.configuration.decide import (
    Lease,
    Leased,
    Share,
    Step,
    backoff,
    due,
    may_take,
    next_step,
    renewed,
    share,
)
from hypothesis import given
from hypothesis import strategies as st

chances = st.floats(0, 1)
seconds = st.floats(10, 100_000)


@st.composite
def leases(draw: st.DrawFn) -> Lease:
    began = draw(st.floats(-1000, 1000))
    asked = draw(seconds)
    whole = draw(st.floats(asked, 10 * asked))
    expires = began + min(asked, whole)
    return Lease(began, began, expires, began + whole, asked, draw(st.booleans()), draw(chances))


@given(leases(), chances)
def test_a_lease_is_due_before_it_ends_with_time_left(lease: Lease, jitter: float) -> None:
    at = due(lease, jitter)
    assert lease.granted <= at < lease.expires
    left, whole = lease.expires - at, lease.ends - lease.began
    assert left >= (lease.expires - lease.granted) / 3 - 1e-6
    if lease.capped:
        assert at == lease.granted or lease.ends - at >= whole / 3 - 1e-6


@given(leases(), st.lists(st.floats(0, 1), max_size=30))
def test_a_lease_that_is_served_in_time_never_runs_out(lease: Lease, delays: list[float]) -> None:
    """Whatever the server does within its rules, and however late answers are within a third."""
    now = lease.began
    for delay in delays:
        step, at = next_step(Leased(current=lease))
        assert at < lease.expires
        now = max(now, at) + delay * min(1.0, (lease.expires - at) / 4)
        assert now < lease.expires
        if step is Step.REPLACE:
            assert lease.capped
            assert lease.expires - now > 0
            return
        assert step is Step.RENEW
        granted = min(lease.asked_seconds, lease.ends - now)
        lease = renewed(lease, now, granted)
        assert lease.expires <= max(lease.ends, now + granted) + 1e-6


@given(leases(), st.floats(0.0, 0.9))
def test_less_than_asked_is_the_end(lease: Lease, part: float) -> None:
    now = due(lease, 0.1)
    short = renewed(lease, now, part * (lease.asked_seconds - 3))
    assert short.capped
    assert short.ends == short.expires
    step, at = next_step(Leased(current=short))
    assert step is Step.REPLACE
    assert at <= max(now, short.expires)


@given(
    st.none() | leases(),
    st.none() | leases(),
    st.booleans(),
    st.booleans(),
    st.tuples(*[st.floats(-2000, 2000)] * 3),
)
def test_the_server_is_left_alone_for_its_pause(
    current: Lease | None,
    other: Lease | None,
    lost: bool,
    asked: bool,
    times: tuple[float, float, float],
) -> None:
    ask_at, renew_at, prove_at = times
    view = Leased(current, other, lost, asked, ask_at=ask_at, renew_at=renew_at, prove_at=prove_at)
    step, at = next_step(view)
    assert math.isfinite(at)
    if step is Step.REPLACE:
        assert other is None, "one candidate at a time"
        assert at >= ask_at
    if step is Step.RENEW:
        assert current is not None
        assert not lost
        assert at >= renew_at
    if step in (Step.PROVE, Step.DROP):
        assert other is not None


@given(leases(), st.floats(0, 10), chances)
def test_a_lease_is_renewed_while_another_is_asked_for_in_vain(
    lease: Lease, pause: float, chance: float
) -> None:
    """The server may renew what it has made and be unable to make more."""
    ask_at, num_renewals = lease.began, 0
    for _ in range(200):
        if lease.capped or num_renewals == 3:
            return
        step, at = next_step(Leased(lease, asked=True, ask_at=ask_at))
        assert at < lease.expires
        if step is Step.RENEW:
            num_renewals += 1
            granted = min(lease.asked_seconds, lease.ends - at)
            lease = renewed(lease, at, granted)
        else:
            assert step is Step.REPLACE
            ask_at = max(ask_at, at) + max(lease.asked_seconds / 50, pause * chance)
    raise AssertionError("it was never renewed")


@given(leases(), chances)
def test_a_pod_that_is_not_replaced_in_time_helps_itself(lease: Lease, jitter: float) -> None:
    step, at = next_step(Leased(lease, replaced=True, jitter=jitter))
    if not lease.capped:
        assert (step, at) == next_step(Leased(lease, jitter=jitter))
        return
    whole = lease.ends - lease.began
    assert step is Step.REPLACE
    assert at >= lease.began + whole * 0.89
    assert at < lease.ends


def test_what_is_wanted_comes_now() -> None:
    lease = Lease(0, 0, 60, 120, 60, True)
    assert next_step(Leased()) == (Step.REPLACE, -math.inf)
    assert next_step(Leased(lease)) == (Step.RENEW, 40)
    assert next_step(Leased(lease, lost=True, ask_at=7)) == (Step.REPLACE, 7)
    assert next_step(Leased(lease, asked=True, ask_at=7)) == (Step.REPLACE, 7)
    assert next_step(Leased(lease, asked=True, ask_at=70)) == (Step.RENEW, 40)
    assert next_step(Leased(lease, check_at=3)) == (Step.CHECK, 3)
    assert next_step(Leased(lease, lease, lost=True, prove_at=5)) == (Step.PROVE, 5)
    assert next_step(Leased(lease, lease, lost=True, prove_at=50)) == (Step.DROP, 40)
    late = next_step(Leased(lease, ask_at=90, renew_at=90))
    assert late == (Step.REPLACE, 90), "it has ended by then"


def test_the_operator_says_who_takes_what() -> None:
    everybody, prover = Approval(id="v2"), Approval(id="v2", prover="pod-1")
    assert may_take(everybody, "v2", "pod-2")
    assert may_take(prover, "v2", "pod-1")
    assert not may_take(prover, "v2", "pod-2")
    assert not may_take(everybody, "v3", "pod-1")
    assert not may_take(None, "v2", "pod-1")
    assert share(None, "v1", False) is Share.PROVE
    assert share("v1", "v1", False) is Share.NOTHING
    assert share("v1", "v2", True) is Share.PROVE
    assert share("v1", "v2", False) is Share.DOUBT


@given(st.integers(1, 10_000), chances)
def test_pauses_are_bounded(num_faults: int, chance: float) -> None:
    pause = backoff(num_faults, 1.0, 30.0, chance)
    assert 0 <= pause <= min(30.0, 2.0 ** min(num_faults - 1, 10))
