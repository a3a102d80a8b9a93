"""Pins: bounded, forgotten in time, against a plain model of them."""

from __future__ import annotations

from chiasm_sidecar.traffic.pins import Pins
from hypothesis import given
from hypothesis import strategies as st

STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["find", "s", "c"]), st.integers(0, 4))
)


def test_forgotten_after_their_time() -> None:
    pins = Pins()
    pins.pin(b"a", "stable", expires=10)
    assert (pins.find(b"a", 9.9), pins.find(b"a", 10), len(pins)) == ("stable", None, 0)


@given(STEPS)
def test_the_one_pinned_longest_ago_goes_first(steps: list[tuple[int, str, int]]) -> None:
    pins, now = Pins(max_pins=3), 0
    model: dict[bytes, tuple[str, int]] = {}
    for key_number, what, later in steps:
        now += later
        key = bytes([key_number])
        if what == "find":
            found = model.get(key)
            if found is not None and found[1] <= now:
                del model[key]
                found = None
            assert pins.find(key, now) == (found and found[0])
        else:
            model.pop(key, None)
            model[key] = (what, now + 6)
            pins.pin(key, what, now + 6)
            if len(model) > 3:
                del model[next(iter(model))]
        assert len(pins) == len(model) <= 3
    pins.clear()
    assert len(pins) == 0
