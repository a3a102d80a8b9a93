"""Distances between two rows of logits, and what rounding may do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from chiasm_worker.checkup.drift import Drift, Truth, compared, limit_of
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

ROWS = arrays(np.float64, 12, elements=st.floats(-30, 30))
NUDGES = arrays(np.float64, 12, elements=st.floats(-3, 3))


@given(ROWS, NUDGES)
def test_kl_never_exceeds_what_the_largest_difference_allows(
    plain: np.ndarray, nudge: np.ndarray
) -> None:
    step = compared("a way", 1, plain + nudge, plain)
    assert step.max_abs == pytest.approx(np.abs(nudge).max(), abs=1e-12)
    assert 0 <= step.kl <= step.max_abs**2 / 2 + 1e-9


@given(ROWS, st.floats(-5, 5))
def test_a_constant_on_all_logits_changes_no_choice(plain: np.ndarray, by: float) -> None:
    step = compared("a way", 1, plain + by, plain)
    assert step.kl == pytest.approx(0, abs=1e-9)


def test_another_choice_counts_only_where_rounding_cannot_make_it() -> None:
    plain = np.array([3.0, 2.999, 0.0])
    close = compared("a way", 1, np.array([2.9, 3.0, 0.0]), plain)
    far = compared("a way", 5, np.array([0.0, 2.999, 0.0]), np.array([3.0, 1.0, 0.0]))
    drift = Drift(noise=0.001, limit=0.01, steps=(close, far))
    assert not close.is_same
    assert drift.beyond == (close, far)
    assert drift.flipped == (far,)


@pytest.mark.parametrize("strange", [math.nan, math.inf])
def test_what_is_no_number_is_beyond_every_limit(strange: float) -> None:
    step = compared("a way", 1, np.array([strange, 0.0]), np.array([0.0, 1.0]))
    assert Drift(0.0, 1e9, (step,)).beyond == (step,)


def test_the_limit_follows_the_noise_and_the_type() -> None:
    rows, again = [np.array([1.0, -8.0])], [np.array([1.5, -8.0])]
    truth = Truth(rows, again)
    assert (truth.noise, truth.largest) == (0.5, 8.0)
    assert limit_of(truth.noise, truth.largest, 1e-7) == 3.0
    assert limit_of(0.0, 10.0, 2**-7) == 20 * 2**-7
