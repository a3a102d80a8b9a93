"""Timelines with a clock that tests move, and steps as they write them."""

from __future__ import annotations

from collections.abc import Sequence

from chiasm_contract.timeline import Encode, Row, Step


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def step(
    number: int, start: float, end: float, rows: Sequence[Row], encodes: Sequence[Encode] = ()
) -> Step:
    """A step that spends half its time on its encodes, if it has any, and the rest on the model."""
    encoded = (start + end) / 2 if encodes else start
    times = (start, start, encoded, end, end, end)
    return Step(number, *times, tuple(rows), tuple(encodes), len(rows), 0, 3)
