"""In which order requests are served, and who gives way when blocks run out.

First come, first served, shifted by priority: a request is served as if it had arrived
`PLACES_PER_PRIORITY` places later for each step of its priority (lower is earlier, as in vLLM).
Priorities are bounded, so only a bounded number of later arrivals ever goes before a request, and
none starves. The request served first is also preempted last, so that work already done is kept.

Must not know: blocks, torch.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from chiasm_contract.messages import PLACES_PER_PRIORITY

from chiasm_worker.request import Request

Rank = tuple[int, int, int]


def rank(arrival: int, priority: int) -> Rank:
    """The place of the request that arrived as number `arrival`; lower is served first."""
    return (arrival + PLACES_PER_PRIORITY * priority, arrival, arrival)


def rank_beside(other: Rank, arrival: int) -> Rank:
    """The place of a request that shares the place of another one, right behind it."""
    return (*other[:2], arrival)


class RankedQueue:
    """Requests in the order of their ranks; a preempted one gets its old place back."""

    def __init__(self) -> None:
        self._requests: list[Request] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def add(self, request: Request) -> None:
        """Put a request into its place."""
        bisect.insort(self._requests, request, key=_rank)

    def peek(self, engine_gen: int) -> Request | None:
        """The request to serve first, of those that began between the same two swaps."""
        return next((r for r in self._requests if r.scope.engine_gen == engine_gen), None)

    def last(self) -> Request:
        """The request to serve last: the first to lose its blocks."""
        return self._requests[-1]

    def remove(self, request: Request) -> None:
        """Take out a request that is here."""
        del self._requests[bisect.bisect_left(self._requests, _rank(request), key=_rank)]


def _rank(request: Request) -> Rank:
    return request.rank
