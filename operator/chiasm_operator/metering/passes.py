"""How passes ended and how long they took, counted from the start of the process.

Must not know: Prometheus' library, clocks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from chiasm_contract.operator_metric_specs import PASS_SECONDS_BUCKETS, PassOutcome


@dataclass
class PassCounts:
    """Counts that only grow."""

    outcomes: Counter[PassOutcome] = field(default_factory=Counter)
    seconds: float = 0.0
    _classes: list[int] = field(default_factory=lambda: [0] * (len(PASS_SECONDS_BUCKETS) + 1))

    def note(self, outcome: PassOutcome, seconds: float) -> None:
        """A pass ended."""
        self.outcomes[outcome] += 1
        self.seconds += seconds
        self._classes[bisect_left(PASS_SECONDS_BUCKETS, seconds)] += 1

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Each upper bound, and how many passes took at most that long."""
        return zip((*PASS_SECONDS_BUCKETS, float("inf")), accumulate(self._classes), strict=True)
