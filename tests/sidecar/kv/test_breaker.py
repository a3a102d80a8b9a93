"""A failing tier is left alone and probed, by a clock of the test's."""

from __future__ import annotations

from chiasm_sidecar.kv.tiers.breaker import Breaker
from hypothesis import given
from hypothesis import strategies as st


def broken(now: float = 0.0) -> Breaker:
    breaker = Breaker(max_failures=3, first_pause_seconds=1, max_pause_seconds=3)
    for _ in range(3):
        assert breaker.allows(now)
        breaker.failed(now)
    return breaker


def test_some_failures_in_a_row_open_it() -> None:
    breaker = Breaker(max_failures=3)
    for _ in range(5):
        breaker.failed(0)
        breaker.failed(0)
        breaker.succeeded()
    assert not breaker.open
    assert broken().open


def test_one_probe_in_each_pause() -> None:
    breaker = broken()
    assert not breaker.allows(0.9)
    assert breaker.allows(1.0)
    assert not breaker.allows(1.0), "the probe has not come back"
    assert not breaker.allows(1.9)
    assert breaker.allows(2.0), "it never came back"


def test_a_probe_that_goes_well_closes_it() -> None:
    breaker = broken()
    assert breaker.allows(1.0)
    breaker.succeeded()
    assert not breaker.open
    assert breaker.allows(1.0)
    breaker.failed(1.0)
    assert not breaker.open, "it counts from nothing again"


def test_a_probe_that_fails_doubles_the_pause_up_to_a_limit() -> None:
    breaker = broken()
    now = 1.0
    for pause in (2, 3, 3):
        assert breaker.allows(now)
        breaker.failed(now)
        assert not breaker.allows(now + pause - 0.1)
        now += pause


def test_calls_that_were_on_their_way_when_it_opened_do_not_count() -> None:
    breaker = broken()
    for _ in range(20):
        breaker.failed(0.5)
    assert breaker.allows(1.0)


@given(st.lists(st.tuples(st.floats(0, 2), st.booleans()), max_size=60))
def test_it_always_asks_again(steps: list[tuple[float, bool]]) -> None:
    breaker = Breaker()
    now = 0.0
    for seconds, well in steps:
        now += seconds
        if breaker.allows(now):
            breaker.succeeded() if well else breaker.failed(now)
            assert not (breaker.open and well)
    assert breaker.allows(now + breaker.max_pause_seconds)
