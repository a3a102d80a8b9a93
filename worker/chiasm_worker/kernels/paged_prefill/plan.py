"""Which keys each new token sees, and which tiles of keys each tile of queries visits.

What a query sees is one range of keys that holds the query itself:

    causal                        0 .. q
    with a window of w            q-w+1 .. q
    in a span s..e-1 (an image)   to e-1, both ways:        0 .. e-1
      and a window, which bounds  the span too:             q-w+1 .. e-1
                    which it passes:             min(q-w+1, s) .. e-1

Ranges of neighbouring queries meet, so that what a tile of queries sees is one range too, from the
lowest beginning to the highest end; what all of them see, from the highest beginning to the lowest
end. Tiles of keys in the one are visited, those wholly in the other without a mask:

    keys    |  partial  |  full  |  full  |  full  |  partial  |
            first    full_first                 full_end      end

Nothing is visited that is hidden, and no list has to be stored. Made on the host once a step for
all layers of one rule.

Must not know: torch, Triton, blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.int32]]
# The columns of a tile of queries: whose, first row in the batch, rows, and the range of keys.
COLUMNS = ("sequence", "first_row", "num_rows", "first", "full_first", "full_end", "end", "length")


@dataclass(frozen=True)
class Rule:
    """How far a layer looks; see AttentionLayer."""

    window: int = 0
    spans_pass_window: bool = False


@dataclass(frozen=True)
class NewTokens:
    """The new tokens of one sequence: num_computed..num_computed+num_new-1.

    Attributes:
        spans: (start, end) of the spans that hold some of them, in order, disjoint.
        elsewhere: another kernel computes them; they have rows in the batch and no tiles.
    """

    num_computed: int
    num_new: int
    spans: Sequence[tuple[int, int]] = ()
    elsewhere: bool = False


@dataclass(frozen=True)
class Plan:
    """What the kernel is given.

    Attributes:
        tiles: [num_tiles, len(COLUMNS)] int32, those with most keys first.
        row_low: [num_tokens] int32, the first key each new token sees; row_high the last.
    """

    tiles: Array
    row_low: Array
    row_high: Array


def seen(tokens: NewTokens, rule: Rule) -> tuple[Array, Array]:
    """First and last key that each of the new tokens sees."""
    query = np.arange(tokens.num_computed, tokens.num_computed + tokens.num_new, dtype=np.int32)
    low = np.zeros_like(query)
    if rule.window:
        low = np.maximum(query - rule.window + 1, 0).astype(np.int32)
    high = query.copy()
    for start, end in tokens.spans:
        inside = (query >= start) & (query < end)
        high[inside] = end - 1
        if rule.spans_pass_window:
            low[inside] = np.minimum(low[inside], start)
    return low, high


def plan(sequences: Sequence[NewTokens], rule: Rule, queries_per_tile: int, tile: int) -> Plan:
    """The plan of one batch.

    Args:
        queries_per_tile: queries that one program takes.
        tile: keys that are read at a time.
    """
    tiles, lows, highs, row = [], [], [], 0
    for index, tokens in enumerate(sequences):
        low, high = seen(tokens, rule)
        lows.append(low)
        highs.append(high)
        if tokens.num_new and not tokens.elsewhere:
            starts = np.arange(0, tokens.num_new, queries_per_tile)
            tiles.append(_tiles(index, row, tokens, (low, high), starts, tile))
        row += tokens.num_new
    rows = np.concatenate(tiles) if tiles else np.zeros((0, len(COLUMNS)), np.int32)
    # The longest first, so that none of them begins when all others are done.
    order = np.argsort(rows[:, 3] - rows[:, 6], kind="stable")
    empty = np.zeros(0, np.int32)
    return Plan(rows[order], np.concatenate([empty, *lows]), np.concatenate([empty, *highs]))


def _tiles(
    index: int,
    row: int,
    tokens: NewTokens,
    ranges: tuple[Array, Array],
    starts: np.ndarray[Any, Any],
    tile: int,
) -> Array:
    low, high = ranges
    first = np.minimum.reduceat(low, starts) // tile * tile
    end = np.maximum.reduceat(high, starts) + 1
    # Seen by all: rounded inwards; nothing where the borders cross.
    full_first = -(-np.maximum.reduceat(low, starts) // tile) * tile
    full_end = (np.minimum.reduceat(high, starts) + 1) // tile * tile
    full_first = np.minimum(full_first, -(-end // tile) * tile)
    full_end = np.maximum(full_end, full_first)
    counts = np.diff(np.append(starts, tokens.num_new))
    length = np.full_like(starts, tokens.num_computed + tokens.num_new)
    whose = np.full_like(starts, index)
    columns = (whose, starts + row, counts, first, full_first, full_end, end, length)
    return np.stack(columns, axis=1).astype(np.int32)


@dataclass(frozen=True)
class Visits:
    """How many tiles of keys a plan visits, and how many hold anything that is seen."""

    visited: int
    visible: int
    masked: int


def visits(sequences: Sequence[NewTokens], rule: Rule, queries_per_tile: int, tile: int) -> Visits:
    """Counted from the masks themselves, pair by pair; for figures and tests."""
    made = plan(sequences, rule, queries_per_tile, tile)
    visited = masked = visible = 0
    for _, row, count, first, full_first, full_end, end, length in made.tiles.tolist():
        visited += -(-(end - first) // tile)
        masked += -(-(end - first) // tile) - (full_end - full_first) // tile
        keys = np.arange(length)
        rows = slice(row, row + count)
        mask = (keys >= made.row_low[rows, None]) & (keys <= made.row_high[rows, None])
        any_seen = np.add.reduceat(mask.any(axis=0), np.arange(0, length, tile)) > 0
        visible += int(any_seen.sum())
    return Visits(visited, visible, masked)
