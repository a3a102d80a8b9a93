"""One fault is one finding, and sound readings are none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from chiasm_contract.checkup import CHECKS
from chiasm_worker.checkup.books import Books
from chiasm_worker.checkup.drift import Drift, StepDrift
from chiasm_worker.checkup.judging import report
from chiasm_worker.checkup.readings import Readings, Steps, Stored
from hypothesis import given
from hypothesis import strategies as st

STEPS = Steps(num_steps=40, num_tokens=200, visibility=())
BOOKS = Books(num_steps=10, num_blocks=100, record_bytes=4096, num_used=7, num_held=7)
WAYS = ("computed anew", "from the cache, two at once")
DRIFT = Drift(
    noise=1e-6,
    limit=1e-4,
    steps=tuple(StepDrift(way, step, 1e-5, 1e-9, 2.0, True) for way in WAYS for step in (1, 5, 10)),
)
SOUND = Readings(
    steps=STEPS, books=(BOOKS, replace(BOOKS, num_steps=50)), drift=DRIFT, stored=Stored((), 9, 9)
)


def far(drift: Drift, *ways: str, since: int = 1, **changes: Any) -> Drift:
    """The drift with some tokens out of bounds."""
    changed = {"max_abs": 0.5, "kl": 0.1, **changes}
    return replace(
        drift,
        steps=tuple(
            replace(s, **changed) if s.way in (ways or WAYS) and s.step >= since else s
            for s in drift.steps
        ),
    )


def leaking(first: int, last: int) -> tuple[Books, ...]:
    before, after = SOUND.books
    assert isinstance(before, Books)
    assert isinstance(after, Books)
    return (
        replace(before, num_used=before.num_held + first),
        replace(after, num_used=after.num_held + last),
    )


def test_sound_readings_are_no_finding() -> None:
    told = report(SOUND)
    assert told.findings == ()
    assert told.missed == ()
    assert [look.check for look in told.looks] == list(CHECKS[:4])


@given(
    used=st.integers(0, 100), cached=st.integers(0, 100), steps=st.integers(0, 10**6),
    share=st.floats(0, 1), noise=st.floats(0, 10), scale=st.floats(0, 100),
)  # fmt: skip
def test_load_is_no_finding(
    used: int, cached: int, steps: int, share: float, noise: float, scale: float
) -> None:
    """Blocks come and go, and numbers are rounded: within what is explained nothing is wrong."""
    books = tuple(
        replace(BOOKS, num_steps=at, num_used=count, num_held=count)
        for at, count in ((0, used), (steps, cached))
    )
    limit = max(6 * noise, 1e-6 * scale)
    drift = Drift(noise, limit, tuple(replace(s, max_abs=share * limit) for s in DRIFT.steps))
    assert report(replace(SOUND, books=books, drift=drift)).findings == ()


PLANTED: dict[str, tuple[str, str, Readings]] = {
    "shapes": ("attention", "critical", replace(
        SOUND, steps=replace(STEPS, num_faulty=3, shape_faults=("8 rows for 5 tokens",)))),
    "visibility": ("attention", "critical", replace(
        SOUND, steps=replace(STEPS, visibility=("token 3 of a sequence of 9 does not",)))),
    "shapes that make answers drift": ("attention", "critical", replace(
        SOUND, drift=far(DRIFT), steps=replace(STEPS, num_faulty=1, shape_faults=("x",)))),
    "a leak that grows": ("pool", "critical", replace(SOUND, books=leaking(0, 4))),
    "a leak of once": ("pool", "warning", replace(SOUND, books=leaking(4, 4))),
    "freed while read": ("pool", "critical", replace(
        SOUND, books=(BOOKS, replace(BOOKS, num_unread=1, num_miscounted=1)))),
    "a reader too many": ("pool", "warning", replace(
        SOUND, books=(BOOKS, replace(BOOKS, num_miscounted=1)))),
    "books that are broken": ("pool", "warning", replace(SOUND, broken_books="free + used != all")),
    "drift": ("drift", "warning", replace(SOUND, drift=far(DRIFT))),
    "drift of choices": ("drift", "critical", replace(SOUND, drift=far(DRIFT, is_same=False))),
    "positions": ("drift", "critical", replace(
        SOUND, drift=far(DRIFT),
        steps=replace(STEPS, num_misplaced=9, position_faults=("3 of 9",)))),
    "no number": ("drift", "warning", replace(SOUND, drift=far(DRIFT, max_abs=float("nan")))),
    "other files": ("identity", "warning", replace(
        SOUND, stored=Stored(("compute.weights.language",), 9, 9))),
    "no files": ("identity", "warning", replace(SOUND, stored=Stored(fault="gone"))),
    "another engine": ("identity", "critical", replace(SOUND, identity_faults=("block_size",))),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_each_fault_is_one_finding(name: str) -> None:
    check, severity, readings = PLANTED[name]
    [finding] = report(readings).findings
    assert (finding.check, finding.severity) == (check, severity)
    assert all((finding.what, finding.where, finding.how_bad, finding.what_to_do))


def test_a_leak_says_how_fast_and_until_when() -> None:
    [finding] = report(PLANTED["a leak that grows"][2]).findings
    assert "4 blocks outlive" in finding.what
    assert "4 held by no request" in finding.where
    assert "0.1 more a step" in finding.how_bad
    assert "full in 960 steps" in finding.how_bad


@pytest.mark.parametrize(
    ("drift", "where"),
    [
        (far(DRIFT), "every way; from the first token"),
        (far(DRIFT, since=5), "every way; from token 5 of the answer"),
        (far(DRIFT, WAYS[1]), "only from the cache, two at once; from the first token"),
    ],
)
def test_drift_says_what_its_tokens_have_in_common(drift: Drift, where: str) -> None:
    [finding] = report(replace(SOUND, drift=drift)).findings
    assert finding.where.startswith(where)


def test_two_faults_are_two_findings() -> None:
    both = replace(SOUND, books=leaking(0, 4), drift=far(DRIFT))
    assert [finding.check for finding in report(both).findings] == ["pool", "drift"]


def test_what_could_not_be_read_says_why_and_is_no_finding() -> None:
    blind = Readings(
        steps=replace(STEPS, failure="KeyError"), books="why", drift="busy", stored="slow"
    )
    told = report(blind)
    assert told.findings == ()
    assert [(look.check, look.words) for look in told.missed] == [
        ("attention", "KeyError"), ("pool", "why"), ("drift", "busy"), ("identity", "slow"),
    ]  # fmt: skip
