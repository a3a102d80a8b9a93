"""What is given as planned has no fault; each way of giving something else has one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from chiasm_worker.checkup.shapes import (
    Given,
    LayerRows,
    Planned,
    chunk_faults,
    layer_faults,
    planned_positions,
    position_fault,
    step_faults,
)
from chiasm_worker.request import Prompt
from hypothesis import given
from hypothesis import strategies as st

BLOCK = 4


@st.composite
def chunks(draw: st.DrawFn, first_block: int = 0) -> tuple[Planned, Given]:
    """A chunk of a request of any length, given as planned."""
    start, count, behind = (draw(st.integers(*bounds)) for bounds in ((0, 40), (1, 40), (0, 9)))
    end = start + count
    num_blocks = -(-end // BLOCK)
    spans = tuple((s, s + 1) for s in range(start, end) if draw(st.integers(0, 9)) == 0)
    cross = tuple((9, 5, s, end) for s in range(draw(st.integers(0, 2))))
    planned = Planned(start, count, end + behind, BLOCK, num_blocks, spans, cross)
    block_ids = tuple(range(first_block, first_block + num_blocks))
    return planned, Given(start, count, block_ids, spans, cross)


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[Planned], list[Given]]:
    pairs = [draw(chunks(first_block=100 * i)) for i in range(draw(st.integers(1, 4)))]
    return [p for p, _ in pairs], [g for _, g in pairs]


@given(steps(), st.lists(st.integers(0, 30), unique=True))
def test_what_is_given_as_planned_has_no_fault(
    step: tuple[list[Planned], list[Given]], media: list[int]
) -> None:
    planned, handed = step
    total = sum(each.num_tokens for each in planned)
    assert list(step_faults(planned, handed, total, media, media)) == []
    assert list(layer_faults([LayerRows(total, total)] * 3, total)) == []


CHANGES: dict[str, Any] = {
    "begins later": lambda g: replace(g, num_computed=g.num_computed + 1),
    "is longer": lambda g: replace(g, num_new=g.num_new + 1),
    "a block too many": lambda g: replace(g, block_ids=(*g.block_ids, 999)),
    "a block too few": lambda g: replace(g, block_ids=g.block_ids[:-1]),
    "a span of its own": lambda g: replace(g, spans=(*g.spans, (g.num_computed, 999))),
    "an item too many": lambda g: replace(g, cross=(*g.cross, (1, 1, 0, 1))),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@given(pair=chunks())
def test_each_change_is_a_fault(change: Any, pair: tuple[Planned, Given]) -> None:
    planned, handed = pair
    assert list(chunk_faults(planned, change(handed)))


@given(chunks())
def test_a_gap_between_two_chunks_is_a_fault(pair: tuple[Planned, Given]) -> None:
    planned, handed = pair
    assert not list(chunk_faults(replace(planned, follows=planned.start), handed))
    found = list(chunk_faults(replace(planned, follows=planned.start - 1), handed))
    assert len(found) == 1
    assert "left out" in found[0]


def test_padding_and_lost_media_rows_are_faults() -> None:
    planned, handed = [Planned(0, 5, 5, BLOCK, 2)], [Given(0, 5, (0, 1))]
    assert "3 are padding" in next(step_faults(planned, handed, 8, [], []))
    assert "encoder's output" in next(step_faults(planned, handed, 5, [1], [1, 2]))
    assert "2 chunks" in next(step_faults(planned, handed * 2, 10, [], []))
    assert "made 6 rows" in next(layer_faults([LayerRows(5, 6)], 5))


def test_two_sequences_must_not_write_to_one_block() -> None:
    planned = [Planned(4, 2, 6, BLOCK, 2), Planned(4, 3, 7, BLOCK, 2)]
    # The first block is a prefix that both read; only the second is written.
    shared = [Given(4, 2, (0, 1)), Given(4, 3, (0, 2))]
    assert list(step_faults(planned, shared, 5, [], [])) == []
    clash = [Given(4, 2, (0, 1)), Given(4, 3, (0, 1))]
    assert "two sequences wrote" in next(step_faults(planned, clash, 5, [], []))


@given(st.integers(0, 20), st.integers(1, 20), st.integers(0, 19), st.integers(-3, 3))
def test_positions_are_the_prompts_and_go_on_behind_it(
    start: int, count: int, wrong: int, by: int
) -> None:
    table = np.stack([np.arange(12), np.arange(12) // 3])
    prompt = Prompt(tuple(range(12)), (), table)
    planned = planned_positions(prompt, start, start + count)
    for column, token in enumerate(range(start, start + count)):
        # Behind the prompt all axes go on from its largest position.
        want = table[:, token].tolist() if token < 12 else [token, token]
        assert planned[:, column].tolist() == want
    given_positions = planned.copy()
    given_positions[-1, wrong % count] += by
    assert (position_fault(given_positions, planned) is None) is (by == 0)
    assert "shape" in str(position_fault(planned[:, :-1], planned))
