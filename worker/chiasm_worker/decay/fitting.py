"""Latency against the ratio r of visual to text tokens: two curves, and how well each predicts.

    power    base x (1 + a x max(r - 1, 0) ^ b)
    affine   base x (1 + slope x r)

The power curve says nothing of ratios below 1; the affine one is what a sum of costs a token makes.
Both minimise relative errors, because latencies differ by a factor of ten over the range. A curve's
error is measured on ratios that it has not seen: each is left out in turn, the others are fitted,
and the one is predicted.

Pure; must not know: engines, clocks, files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

_MIN_RATIOS = 4
_EXPONENTS = (0.05, 3.0)


@dataclass(frozen=True, slots=True)
class Point:
    """One ratio, and the latency there."""

    ratio: float
    seconds: float


class Curve(Protocol):
    """A fitted model of latency."""

    def at(self, ratio: float) -> float:
        """Seconds at a ratio."""
        ...


@dataclass(frozen=True, slots=True)
class Power:
    """base x (1 + a x max(r - 1, 0) ^ b)."""

    base: float
    a: float
    b: float

    def at(self, ratio: float) -> float:
        """Seconds at a ratio."""
        return self.base * (1 + self.a * float(max(ratio - 1.0, 0.0) ** self.b))


@dataclass(frozen=True, slots=True)
class Affine:
    """base x (1 + slope x r)."""

    base: float
    slope: float

    def at(self, ratio: float) -> float:
        """Seconds at a ratio."""
        return self.base * (1 + self.slope * ratio)


@dataclass(frozen=True, slots=True)
class Error:
    """Of predictions for ratios that a curve has not seen, as parts of what was measured."""

    mean: float
    worst: float


Fit = Callable[[Sequence[Point]], Curve]


def fit_power(points: Sequence[Point]) -> Power:
    """The power curve of least relative error.

    Raises: ValueError when there are too few ratios, or none above 1.
    """
    ratios, seconds = _columns(points)
    above = np.maximum(ratios - 1.0, 0.0)
    if not (above > 0).any():
        raise ValueError("No ratio is above 1, where this curve begins to rise; measure some.")

    def solved(b: float) -> tuple[float, Power]:
        # 0 ** b is 0: below 1 the curve is its base.
        growth = np.where(above > 0, above, 1.0) ** b * (above > 0)
        base, rise = _least(np.stack((np.ones_like(growth), growth), axis=1), seconds)
        curve = Power(base, rise / base if base else 0.0, b)
        return _loss(curve, points), curve

    low, high = _EXPONENTS
    best = (float("inf"), Power(0.0, 0.0, 1.0))
    for _ in range(4):  # each time ten times as fine
        grid = np.linspace(low, high, 41)
        best = min((solved(float(b)) for b in grid), key=lambda each: each[0])
        step = (high - low) / 40
        low, high = max(_EXPONENTS[0], best[1].b - 2 * step), best[1].b + 2 * step
    return best[1]


def fit_affine(points: Sequence[Point]) -> Affine:
    """The affine curve of least relative error.

    Raises: ValueError when there are too few ratios.
    """
    ratios, seconds = _columns(points)
    base, rise = _least(np.stack((np.ones_like(ratios), ratios), axis=1), seconds)
    return Affine(base, rise / base if base else 0.0)


def error_of(fit: Fit, points: Sequence[Point]) -> Error:
    """How far predictions are off for each ratio that is left out; the ends are extrapolated.

    Raises: ValueError when there are too few ratios.
    """
    errors = [
        abs(predicted - left.seconds) / left.seconds for left, predicted in _left(fit, points)
    ]
    return Error(float(np.mean(errors)), float(max(errors)))


def _left(fit: Fit, points: Sequence[Point]) -> Iterator[tuple[Point, float]]:
    for index, left in enumerate(points):
        others = [*points[:index], *points[index + 1 :]]
        yield left, fit(others).at(left.ratio)


def _columns(points: Sequence[Point]) -> tuple[Values, Values]:
    ratios = np.array([point.ratio for point in points], dtype=np.float64)
    seconds = np.array([point.seconds for point in points], dtype=np.float64)
    if len(set(ratios.tolist())) < _MIN_RATIOS - 1:
        raise ValueError(
            f"{len(set(ratios.tolist()))} ratios are too few to fit a curve; measure at least "
            f"{_MIN_RATIOS}."
        )
    if not (seconds > 0).all():
        raise ValueError("A latency of 0 s or less is no measurement.")
    return ratios, seconds


def _least(columns: Values, seconds: Values) -> tuple[float, float]:
    """The two coefficients that minimise the sum of squared relative errors."""
    weighted = columns / seconds[:, None]
    solution, *_ = np.linalg.lstsq(weighted, np.ones_like(seconds), rcond=None)
    return float(solution[0]), float(solution[1])


def _loss(curve: Curve, points: Sequence[Point]) -> float:
    return sum(((curve.at(p.ratio) - p.seconds) / p.seconds) ** 2 for p in points)
