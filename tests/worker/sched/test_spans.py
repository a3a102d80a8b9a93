"""Chunks and prefix hits never end inside a span whose tokens see one another."""

from __future__ import annotations

import pytest
from chiasm_worker.sched.spans import Span, chunk_end, whole_prefix_blocks
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def spans(draw: st.DrawFn) -> tuple[Span, ...]:
    borders = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), max_size=5))
    found, at = [], 0
    for gap, length in borders:
        found.append((at + gap, at + gap + length))
        at += gap + length
    return tuple(found)


def cut(place: int, found: tuple[Span, ...]) -> bool:
    return any(first < place < last for first, last in found)


@given(spans(), st.integers(0, 80), st.integers(1, 30))
def test_a_chunk_ends_outside_spans_and_grows_only_for_one_that_begins_it(
    found: tuple[Span, ...], start: int, budget: int
):
    """The fault: a span over two chunks, its first half blind to the second."""
    if cut(start, found):
        start = next(last for first, last in found if first < start < last)
    end = chunk_end(start, start + budget, found)
    assert end > start
    assert not cut(end, found)
    if end > start + budget:
        assert (start, end) in found
    else:
        # As far as possible: only the span that the budget would cut is left for later.
        assert end == start + budget or any(f == end and start + budget < last for f, last in found)


@given(spans(), st.integers(1, 17), st.integers(1, 80))
def test_chunks_of_any_budget_cover_a_prompt_once(
    found: tuple[Span, ...], budget: int, length: int
):
    """The fault: no progress before a span that is longer than the budget."""
    length = max([length, *[last for _, last in found]])
    at, steps = 0, 0
    while at < length:
        at = chunk_end(at, min(at + budget, length), found)
        steps += 1
    assert at == length
    assert steps <= length


@given(spans(), st.integers(0, 12), st.sampled_from([1, 4, 8]))
def test_a_hit_ends_outside_spans(found: tuple[Span, ...], num_blocks: int, block_size: int):
    """The fault: computing goes on in the middle of a span that was found by half."""
    kept = whole_prefix_blocks(num_blocks, block_size, found)
    assert 0 <= kept <= num_blocks
    assert not cut(kept * block_size, found)
    between = range(kept + 1, num_blocks + 1)
    assert all(cut(n * block_size, found) for n in between)


@pytest.mark.parametrize(
    ("num_blocks", "kept"), [(0, 0), (1, 1), (2, 1), (3, 1), (4, 1), (5, 5), (6, 6)]
)
def test_a_hit_rolls_back_to_the_block_before_the_span(num_blocks: int, kept: int):
    # Blocks of 4; the spans are tokens 6-8 and 9-19: no hit of 2, 3 or 4 blocks.
    assert whole_prefix_blocks(num_blocks, 4, ((6, 9), (9, 20))) == kept
