"""The share is hit exactly, alone and by a fleet."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from chiasm_contract.traffic import WHOLE
from chiasm_sidecar.traffic.splitter import Splitter, phase_of
from hypothesis import given
from hypothesis import strategies as st

SHARES = st.integers(0, WHOLE)
FLEET = st.integers(1, 8)


def fleet(size: int) -> list[Splitter]:
    members = tuple(f"pod-{number}" for number in range(size))
    return [Splitter(phase_of(member, members)) for member in members]


def test_forty_conversations_at_five_per_cent_are_two() -> None:
    for size in (1, 2, 4, 5, 8, 10):
        pods = fleet(size)
        hits = sum(pod.draw(500) for _ in range(40 // size) for pod in pods)
        assert hits == 2, f"{size} sidecars"


@given(SHARES, FLEET, st.integers(0, 60))
def test_a_fleet_with_equal_numbers_is_as_exact_as_one(share: int, size: int, n: int) -> None:
    hits = sum(pod.draw(share) for pod in fleet(size) for _ in range(n))
    assert hits == math.floor(Fraction(size * n * share, WHOLE))


@given(SHARES, st.lists(st.integers(0, 60), min_size=1, max_size=8))
def test_unequal_numbers_cost_less_than_one_each(share: int, numbers: list[int]) -> None:
    pods = fleet(len(numbers))
    hits = sum(pod.draw(share) for pod, n in zip(pods, numbers, strict=True) for _ in range(n))
    assert abs(hits - Fraction(sum(numbers) * share, WHOLE)) < len(numbers)


@given(FLEET, st.lists(st.tuples(SHARES, st.integers(0, 20)), max_size=6))
def test_what_is_owed_stays_owed_when_the_share_changes(
    size: int, stages: list[tuple[int, int]]
) -> None:
    pods = fleet(size)
    due, hits = Fraction(0), 0
    for share, n in stages:
        before = hits
        hits += sum(pod.draw(share) for pod in pods for _ in range(n))
        stage = Fraction(size * n * share, WHOLE)
        due += stage
        assert abs(hits - before - stage) < 1, "each window is exact"
        assert 0 <= due - hits < 1, "and so are all together"


@given(SHARES, st.integers(0, 7), st.integers(1, 30))
def test_a_phase_is_taken_only_before_the_first_draw(share: int, place: int, n: int) -> None:
    fresh, other = Splitter(Fraction(0)), Splitter(Fraction(place, 8))
    fresh.rephase(Fraction(place, 8))
    drawn = [fresh.draw(share) for _ in range(n)]
    assert drawn == [other.draw(share) for _ in range(n)]
    fresh.rephase(Fraction(0))
    assert fresh.draw(share) == other.draw(share)


@given(SHARES, st.integers(0, 7), st.integers(1, 30))
def test_a_share_of_nothing_is_no_draw(share: int, place: int, n: int) -> None:
    begun, other = Splitter(Fraction(0)), Splitter(Fraction(place, 8))
    assert not begun.draw(0)
    begun.rephase(Fraction(place, 8))
    assert [begun.draw(share) for _ in range(n)] == [other.draw(share) for _ in range(n)]


@pytest.mark.parametrize(("share", "expected"), [(0, 0), (WHOLE, 100)])
def test_nothing_and_all(share: int, expected: int) -> None:
    assert sum(pod.draw(share) for pod in fleet(4) for _ in range(25)) == expected


def test_places() -> None:
    assert phase_of("b", ("a", "b", "c")) == Fraction(1, 3)
    assert phase_of("d", ("a", "b", "c")) == 0
    assert phase_of("a", ()) == 0
