"""Whatever slices a track is given, its edges nest: a viewer draws them all."""

from __future__ import annotations

from chiasm_cli.trace.tracks import Slice, edges
from hypothesis import given
from hypothesis import strategies as st

times = st.integers(0, 30)
some_slices = st.lists(
    st.tuples(times, times).map(lambda pair: Slice("s", min(pair), max(pair))), max_size=20
)


@given(some_slices)
def test_edges_nest_and_are_in_order(given_slices: list[Slice]) -> None:
    open_slices: list[Slice] = []
    moments = []
    found = edges(given_slices)
    for edge in found:
        moments.append(edge.moment)
        if edge.side > 0:
            open_slices.append(edge.slice)
        elif edge.side < 0:
            assert open_slices.pop() is edge.slice
    assert not open_slices
    assert moments == sorted(moments)
    assert sum(edge.side >= 0 for edge in found) == len(given_slices)


def test_what_ends_comes_before_what_begins() -> None:
    first, second = Slice("first", 0, 5), Slice("second", 5, 9)
    assert [(e.side, e.slice.name) for e in edges([second, first])] == [
        (1, "first"), (-1, "first"), (1, "second"), (-1, "second"),
    ]  # fmt: skip


def test_a_slice_that_outlasts_the_one_around_it_is_cut() -> None:
    around, late = Slice("around", 0, 5), Slice("late", 3, 7)
    assert [(e.moment, e.slice.name) for e in edges([around, late])] == [
        (0, "around"), (3, "late"), (5, "late"), (5, "around"),
    ]  # fmt: skip
