"""Curves find what they were made from; their error is that of ratios that they have not seen."""

from __future__ import annotations

import numpy as np
import pytest
from chiasm_worker.decay.fitting import (
    Affine,
    Curve,
    Point,
    Power,
    error_of,
    fit_affine,
    fit_power,
)
from hypothesis import given, settings
from hypothesis import strategies as st

RATIOS = (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0)


def points(curve: Curve, noise: float = 0.0, seed: int = 0) -> list[Point]:
    draw = np.random.default_rng(seed)
    factors = 1 + noise * draw.uniform(-1, 1, len(RATIOS))
    return [Point(r, curve.at(r) * f) for r, f in zip(RATIOS, factors, strict=True)]


@settings(max_examples=30)
@given(base=st.floats(1e-3, 10), a=st.floats(0.02, 2), b=st.floats(0.3, 2))
def test_a_power_curve_is_found_again(base: float, a: float, b: float) -> None:
    found = fit_power(points(Power(base, a, b)))
    assert found.base == pytest.approx(base, rel=1e-3)
    for ratio in (*RATIOS, 20.0):
        assert found.at(ratio) == pytest.approx(Power(base, a, b).at(ratio), rel=0.02)


@given(base=st.floats(1e-3, 10), slope=st.floats(0, 5))
def test_an_affine_curve_is_found_again(base: float, slope: float) -> None:
    found = fit_affine(points(Affine(base, slope)))
    assert found.base == pytest.approx(base, rel=1e-6)
    assert found.slope == pytest.approx(slope, rel=1e-6, abs=1e-9)


def test_the_right_kind_of_curve_has_the_smaller_error() -> None:
    bent = points(Power(0.1, 0.07, 0.6))
    straight = points(Affine(0.1, 0.3))
    assert error_of(fit_power, bent).mean < 0.01 < error_of(fit_affine, bent).mean
    assert error_of(fit_affine, straight).mean < 1e-9 < error_of(fit_power, straight).mean


def test_the_error_is_about_that_of_the_measurements() -> None:
    noisy = points(Affine(0.1, 0.3), noise=0.1)
    error = error_of(fit_affine, noisy)
    assert 0.01 < error.mean < 0.15
    assert error.mean <= error.worst < 0.4


@pytest.mark.parametrize(
    ("given_points", "words"),
    [
        ([Point(0, 1), Point(5, 2)], "are too few to fit a curve"),
        ([Point(0, 1), Point(0.5, 1), Point(1, 1), Point(0.2, 2)], "No ratio is above 1"),
        ([Point(0, 1), Point(2, 1), Point(3, 0), Point(4, 2)], "is no measurement"),
    ],
)
def test_what_cannot_be_fitted_is_refused(given_points: list[Point], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit_power(given_points)
