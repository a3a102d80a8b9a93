"""Noise is a function of its place, distributed as it should, and costs few logarithms."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from chiasm_worker.engine import noise
from chiasm_worker.engine.noise import draw, gumbel, random_bits, splitmix64
from hypothesis import example, given
from hypothesis import strategies as st

VOCAB = 151_936


def bits_of(seed: int, count: int) -> npt.NDArray[np.uint64]:
    return random_bits(seed, 0, 0, np.arange(count, dtype=np.int64))


def test_noise_is_finite_and_distributed_as_it_should():
    ids = np.arange(200_000, dtype=np.int64)
    seen = gumbel(random_bits(1, 0, 0, ids))
    assert np.isfinite(seen).all()
    uniform = np.sort(np.exp(-np.exp(-seen)))
    # Kolmogorov-Smirnov; 3.2 / sqrt(n) is exceeded once in 1e9.
    assert np.abs(uniform - (ids + 0.5) / len(ids)).max() < 3.2 / math.sqrt(len(ids))
    places = [(2, 0, 0), (1, 1, 0), (1, 0, 1)]
    others = [gumbel(random_bits(*place, ids)) for place in places] + [np.roll(seen, 1)]
    for other in others:
        assert abs(np.corrcoef(seen, other)[0, 1]) < 6 / math.sqrt(len(ids))


@pytest.mark.parametrize("bits", [0, 2**12 - 1, 2**63, 2**64 - 1])
def test_noise_of_any_bits_is_finite(bits: int):
    assert np.isfinite(gumbel(np.array([bits], dtype=np.uint64))).all()


@given(
    ids=st.lists(st.integers(0, 400), min_size=1, max_size=50),
    place=st.tuples(st.integers(-(2**63), 2**64), st.integers(0, 99), st.integers(0, 10**6)),
)
def test_a_tokens_noise_does_not_depend_on_the_other_candidates(
    ids: list[int], place: tuple[int, int, int]
):
    """The fault: what a filter leaves decides which number a token gets."""
    whole = random_bits(*place, np.arange(401, dtype=np.int64))
    assert np.array_equal(random_bits(*place, np.array(ids, dtype=np.int64)), whole[ids])


def test_bits_are_those_that_others_publish_for_splitmix64():
    """Seeds keep their texts: a rewrite that draws otherwise shows here."""
    bits = splitmix64(1234567, np.array([1, 2, 3]))
    assert bits.tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    place = random_bits(-3, 1, 2, np.array([0, 7, 151_935]))
    assert place.tolist() == [11022514523085658501, 13729039900393908255, 17195157624251385044]


VALUES = st.one_of(
    st.lists(st.sampled_from([0.0, -1.0, -7.0, -40.0, -np.inf]), min_size=1, max_size=60),
    st.lists(st.floats(-30, 0), min_size=1, max_size=60),
)


@given(values=VALUES, seed=st.integers(0, 2**40), repeats=st.sampled_from([1, 7, 300]))
@example(values=[-np.inf] * 9, seed=0, repeats=1)
def test_a_draw_is_the_largest_sum_with_all_noise(values: list[float], seed: int, repeats: int):
    """The fault: a token that would have won is passed over because its noise was not computed."""
    row = np.array(values * repeats)
    bits = bits_of(seed, len(row))
    assert draw(row, bits) == int((row + gumbel(bits)).argmax())


@given(values=VALUES, seed=st.integers(0, 2**40))
def test_of_equal_sums_the_first_is_drawn(values: list[float], seed: int):
    row = np.repeat(np.array(values), 3)
    bits = np.repeat(bits_of(seed, len(values)), 3)
    assert draw(row, bits) == int((row + gumbel(bits)).argmax())


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0, 3.0, 10.0, 100.0])
def test_few_logarithms_decide_a_draw_from_a_whole_vocabulary(
    scale: float, monkeypatch: pytest.MonkeyPatch
):
    """The fault: two logarithms for each of 151,936 tokens, 3 ms a row, before every token."""
    row = scale * np.random.default_rng(0).standard_normal(VOCAB)
    row -= row.max()
    sizes: list[int] = []

    def counted(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
        sizes.append(len(bits))
        return gumbel(bits)

    monkeypatch.setattr(noise, "gumbel", counted)
    for seed in range(20):
        bits = bits_of(seed, VOCAB)
        assert draw(row, bits) == int((row + gumbel(bits)).argmax())
    assert sum(sizes) / 20 < 0.03 * VOCAB
