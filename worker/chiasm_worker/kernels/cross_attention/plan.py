"""Which part of which media item is read by which rows, one program each.

Rows of a request that see the same items side by side are a segment. A segment of many rows reads
each item whole; one of few rows (decoding) reads it in chunks, so that a picture's thousands of
vectors are not one program's. Where a row has several parts, a merge weighs them. All of it depends
on the request alone.

Must not know: torch, Triton, blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.int32]]
# Of which item, rows of the batch, its vectors start..end-1, which of the rows' parts (-1: the
# only one).
COLUMNS = ("source", "first_row", "num_rows", "start", "end", "part")


@dataclass(frozen=True)
class Seen:
    """One item of a request: rows start..end-1 of the request see its first `num_visible`."""

    num_vectors: int
    num_visible: int
    start: int
    end: int


@dataclass(frozen=True)
class Reader:
    """The new rows first..first+num_rows-1 of one request, and the items it has."""

    first: int
    num_rows: int
    items: Sequence[Seen]


@dataclass(frozen=True)
class Shape:
    """Queries of a program for few and for many rows; vectors of a chunk where rows are few."""

    few_queries: int
    many_queries: int
    chunk: int


@dataclass(frozen=True)
class Plan:
    """What the kernel is given.

    Attributes:
        few: [num_programs, len(COLUMNS)] int32, those of segments of few rows; many likewise.
        num_parts: [num_rows] int32 of each row.
    """

    few: Array
    many: Array
    num_parts: Array

    @property
    def max_parts(self) -> int:
        """Parts of the row that has most."""
        return int(self.num_parts.max(initial=1))


def segments(reader: Reader) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """(first row, end, [(item, vectors seen)]) of rows that see the same; a row that sees no item
    sees every vector of all."""
    last = reader.first + reader.num_rows
    edges = {reader.first, last}
    edges |= {e for i in reader.items for e in (i.start, i.end) if reader.first < e < last}
    found = []
    borders = sorted(edges)
    for start, end in pairwise(borders):
        own = [
            (index, item.num_visible)
            for index, item in enumerate(reader.items)
            if item.start <= start and end <= item.end and item.num_visible
        ]
        everything = [(index, item.num_vectors) for index, item in enumerate(reader.items)]
        found.append((start, end, own or everything))
    return found


def plan(readers: Sequence[Reader], shape: Shape) -> Plan:
    """The plan of the rows of all readers, back to back; items are counted through."""
    few: list[tuple[int, ...]] = []
    many: list[tuple[int, ...]] = []
    counts: list[int] = []
    row = item = 0
    for reader in readers:
        for start, end, own in segments(reader):
            first, num_rows = row + start - reader.first, end - start
            is_few = num_rows <= shape.few_queries
            parts = []
            for index, seen in own:
                step = shape.chunk if is_few else seen
                parts += [(item + index, i, min(i + step, seen)) for i in range(0, seen, step)]
            queries = shape.few_queries if is_few else shape.many_queries
            for begin in range(0, num_rows, queries):
                rows = min(queries, num_rows - begin)
                for part, (source, low, high) in enumerate(parts):
                    place = part if len(parts) > 1 else -1
                    entry = (source, first + begin, rows, low, high, place)
                    (few if is_few else many).append(entry)
            counts += [len(parts)] * num_rows
        row += reader.num_rows
        item += len(reader.items)
    return Plan(_array(few), _array(many), np.array(counts, np.int32))


def _array(entries: list[tuple[int, ...]]) -> Array:
    return np.array(entries, np.int32).reshape(-1, len(COLUMNS))
