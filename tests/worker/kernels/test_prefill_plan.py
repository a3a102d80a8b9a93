"""The plan of a prefill visits what is seen and nothing else, and masks only where it must."""

from __future__ import annotations

import numpy as np
from chiasm_worker.kernels.paged_prefill.plan import NewTokens, Rule, plan, seen, visits
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def sequences(draw: st.DrawFn) -> NewTokens:
    """A chunk that cuts no span."""
    length = draw(st.integers(0, 60))
    cuts = sorted(draw(st.sets(st.integers(0, length), max_size=6)))
    spans = list(zip(cuts[::2], cuts[1::2], strict=False))
    free = [i for i in range(length + 1) if not any(s < i < e for s, e in spans)]
    computed = draw(st.sampled_from(free))
    own = [(s, e) for s, e in spans if e > computed]
    return NewTokens(computed, length - computed, own)


rules = st.builds(Rule, st.integers(0, 20), st.booleans())


def sees(tokens: NewTokens, rule: Rule, query: int, key: int) -> bool:
    """The rule in words, as the torch backend's test says it."""
    together = any(s <= query < e and s <= key < e for s, e in tokens.spans)
    near = not rule.window or key > query - rule.window
    if rule.spans_pass_window:
        return together or (key <= query and near)
    return (together or key <= query) and near


@given(sequences(), rules)
def test_what_a_query_sees_is_one_range(tokens: NewTokens, rule: Rule) -> None:
    low, high = seen(tokens, rule)
    length = tokens.num_computed + tokens.num_new
    for i, query in enumerate(range(tokens.num_computed, length)):
        expected = [key for key in range(length) if sees(tokens, rule, query, key)]
        assert list(range(low[i], high[i] + 1)) == expected


@given(st.lists(sequences(), max_size=3), rules, st.integers(1, 20), st.sampled_from([1, 4, 16]))
def test_tiles_hold_what_is_seen_and_full_ones_nothing_hidden(
    batch: list[NewTokens], rule: Rule, queries: int, tile: int
) -> None:
    made = plan(batch, rule, queries, tile)
    rows = []
    for sequence, row, count, first, full_first, full_end, end, length in made.tiles.tolist():
        assert length == batch[sequence].num_computed + batch[sequence].num_new
        assert first % tile == full_first % tile == full_end % tile == 0
        assert first <= full_first <= full_end
        assert full_end <= max(full_first, length)
        low, high = made.row_low[row : row + count], made.row_high[row : row + count]
        assert first <= low.min()
        assert end == high.max() + 1
        if full_first < full_end:
            assert low.max() <= full_first
            assert high.min() >= full_end - 1
        # The partial tiles and the full ones cover the range.
        covered = set(range(first, full_first)) | set(range(full_first, full_end))
        covered |= set(range(full_end, end))
        assert covered >= set(range(first, end))
        rows += range(row, row + count)
    assert sorted(rows) == list(range(sum(t.num_new for t in batch)))


@given(st.lists(sequences(), max_size=3), rules, st.integers(1, 20), st.sampled_from([4, 16]))
def test_no_tile_is_visited_that_is_hidden(
    batch: list[NewTokens], rule: Rule, queries: int, tile: int
) -> None:
    counted = visits(batch, rule, queries, tile)
    assert counted.visited == counted.visible
    assert counted.masked <= counted.visited


def test_an_image_among_text() -> None:
    # 64 text, 64 of an image, 64 text; tiles of 32 queries and 32 keys.
    made = plan([NewTokens(0, 192, [(64, 128)])], Rule(), 32, 32)
    by_row = made.tiles[np.argsort(made.tiles[:, 1])]
    assert by_row[:, 6].tolist() == [32, 64, 128, 128, 160, 192]
    # The image's tiles need no mask at all.
    assert by_row[:, 4:6].tolist()[2:4] == [[0, 128], [0, 128]]
    assert by_row[:, 4:6].tolist()[0] == [0, 0]
