"""What drives the growth of latency: how much of it goes when a stage has nothing to do.

    growth = seconds at the highest ratio - seconds at the lowest
    share of a stage = (growth - growth without the stage) / growth

A stage is left out at both ends, so that what it costs anyway does not count. Shares need not add
up to 1: what no stage explains remains.

Pure; must not know: engines, clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ends:
    """Seconds at the lowest and at the highest ratio."""

    low: float
    high: float

    @property
    def growth(self) -> float:
        """What the higher ratio costs more."""
        return self.high - self.low


def shares(whole: Ends, without: Mapping[str, Ends]) -> dict[str, float]:
    """Stage -> its share of the growth.

    Args:
        without: stage -> seconds when it has nothing to do.

    Raises: ValueError when nothing grows, so that nothing can have a share.
    """
    if whole.growth <= 0:
        raise ValueError(
            f"Latency does not grow from the lowest ratio ({whole.low:.4g} s) to the highest "
            f"({whole.high:.4g} s); measure higher ratios, or more often."
        )
    return {stage: 1 - ends.growth / whole.growth for stage, ends in without.items()}
