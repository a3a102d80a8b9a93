"""In which order cached entries are given up: cheap to have again and long unused first.

Greedy-dual with costs, sizes and frequency: P. Cao and S. Irani, "Cost-Aware WWW Proxy Caching
Algorithms", USITS 1997; L. Cherkasova, "Improving WWW Proxies Performance with Greedy-Dual-Size-
Frequency Caching Policy", HPL-98-69R1, 1998. (N. E. Young's Landlord, Algorithmica 33, 2002, is the
same without frequency, which let twice as many pictures go in bench/media_cache.py.) When an entry
loses its last reader it gets

    credit = floor + uses x seconds to rebuild / blocks

and what is given up is the entry of least credit, to which the floor then rises. Among entries of
equal cost that were used once this is least-recently-used; an entry that cost k times as much a
block survives about k times as many evictions of others.

A cached prefix is a chain: without its parent a block cannot be found. So nothing is given up
before its descendants: whoever keeps the chains raises a parent's credit to its child's.

Must not know: what entries are, clocks.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

_SLACK = 64


class Standing(NamedTuple):
    """An entry's place: lower goes first; the number tells apart and orders equal credits."""

    credit: float
    number: int


class EvictionQueue:
    """Entries (by their number) that nobody reads, in order of credit."""

    def __init__(self) -> None:
        self.floor = 0.0
        self._next = 0
        self._heap: list[tuple[Standing, int]] = []
        self._standing: dict[int, Standing] = {}

    def __len__(self) -> int:
        return len(self._standing)

    def __contains__(self, entry: int) -> bool:
        return entry in self._standing

    def standing(self, entry: int) -> Standing | None:
        """Where an entry stands; None if it is not in the queue."""
        return self._standing.get(entry)

    def add(self, entry: int, cost: float, at_least: float = 0.0) -> Standing:
        """Queue an entry behind all others of equal credit, or move it there."""
        standing = Standing(max(self.floor + cost, at_least), self._next)
        self._next += 1
        self._standing[entry] = standing
        heapq.heappush(self._heap, (standing, entry))
        if len(self._heap) > 2 * len(self._standing) + _SLACK:
            self._heap = [(place, e) for e, place in self._standing.items()]
            heapq.heapify(self._heap)
        return standing

    def discard(self, entry: int) -> None:
        """Take an entry out, because it has a reader again or is gone."""
        self._standing.pop(entry, None)

    def pop(self) -> int:
        """Give up the entry of least credit."""
        while True:
            standing, entry = heapq.heappop(self._heap)
            if self._standing.get(entry) == standing:
                del self._standing[entry]
                self.floor = standing.credit
                return entry
