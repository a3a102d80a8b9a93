"""The arithmetic of pods and shares, for every small number."""

from __future__ import annotations

from chiasm_contract.traffic import WHOLE
from chiasm_operator.reconcile.rollout.capacity import Pace, bearable, bears, need, replace
from chiasm_operator.reconcile.rollout.seen import Standing
from hypothesis import given
from hypothesis import strategies as st

PODS = st.integers(0, 40)


@st.composite
def standings(draw: st.DrawFn) -> Standing:
    replicas = draw(PODS)
    return Standing(replicas=replicas, ready=draw(st.integers(0, replicas)))


@given(PODS, standings(), standings())
def test_what_is_bearable_is_borne(pods: int, mine: Standing, other: Standing) -> None:
    share = bearable(pods, mine, other)
    assert 0 <= share <= WHOLE
    assert share == 0 or pods == 0 or bears(pods, mine, other, share)
    assert pods == 0 or share == 0 or mine.ready


@given(st.integers(1, 1000), st.integers(0, WHOLE), st.integers(0, WHOLE))
def test_need_grows_with_the_share(pods: int, one: int, other: int) -> None:
    assert need(pods, 0) == 0
    assert need(pods, WHOLE) == pods or pods * (WHOLE - 1) // WHOLE + 1 == pods
    low, high = sorted((one, other))
    assert need(pods, low) <= need(pods, high) <= pods


@given(
    st.integers(0, 20), st.integers(0, 5), st.integers(0, 5), standings(), standings(), PODS, PODS
)
def test_pods_are_replaced_within_the_bounds(
    replicas: int, surge: int, unavailable: int, rise: Standing, fall: Standing, others: int,
    kept: int,
) -> None:  # fmt: skip
    pace = Pace(replicas, surge, unavailable)
    risen, left = replace(pace, rise, fall, others, kept)
    assert 0 <= left <= fall.replicas
    assert 0 <= risen <= replicas
    if risen > rise.replicas:
        assert risen + fall.replicas + others <= replicas + surge
    unready = fall.replicas - fall.ready
    taken = max(0, fall.replicas - left - unready)  # ready pods that go: unready ones go first
    if pace.must_serve:
        assert taken == 0 or rise.ready + fall.ready - taken >= pace.must_serve
    assert left >= min(kept, fall.replicas)
