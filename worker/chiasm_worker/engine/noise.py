"""Random numbers that are a function of where they are needed, not of what was drawn before.

A token's noise depends on the request's seed, the choice, the position in its answer and the
token, and on nothing else: no generator is advanced, so neighbours, chunks and preemption leave a
request's draws as they are. Choosing the token whose `logit + noise` is largest draws from the
softmax (the Gumbel-max trick). Rounding that differs from batch to batch moves a draw only where
two tokens are within it of a tie; walking along cumulated probabilities would let every rounding
of every token before the chosen one move it.

Must not know: what values are made of, parameters.
"""

from __future__ import annotations

import hashlib
import math
import struct

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint64]
Row = npt.NDArray[np.float64]

# splitmix64's increment, and the shifts and multipliers of its finaliser.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIXING = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)

# One token in 400 has noise above it.
_LARGE_NOISE = 6.0
_LARGE_BITS = np.uint64(int(math.exp(-math.exp(-_LARGE_NOISE)) * 2.0**64))
# More than all rounding of noise, sums and _LARGE_BITS together.
_ROUNDING = 1e-6


def random_bits(seed: int, choice: int, position: int, token_ids: npt.NDArray[np.int64]) -> Bits:
    """64 independent bits for each of `token_ids`, whichever the others are."""
    place = struct.pack("<Qqq", seed % 2**64, choice, position)
    start = int.from_bytes(hashlib.blake2b(place, digest_size=8).digest(), "little")
    return splitmix64(start, token_ids)


def splitmix64(start: int, indices: npt.NDArray[np.int64]) -> Bits:
    """What Steele, Lea and Flood's generator (OOPSLA 2014) makes of seed `start` at `indices`.

    It has no state to run up to an index: a few of 150,000 cost microseconds.
    """
    bits: Bits = indices.astype(np.uint64)
    bits *= _STEP
    bits += np.uint64(start)
    for shift, factor in _MIXING:
        bits ^= bits >> shift
        bits *= factor
    bits ^= bits >> np.uint64(31)
    return bits


def gumbel(bits: Bits) -> Row:
    """Standard Gumbel noise of random bits; always finite."""
    # 52 bits and a half: uniform inside (0, 1), and 53 would round up to 1.
    uniform = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    noise: Row = -np.log(-np.log(uniform))
    return noise


def draw(values: Row, bits: Bits) -> int:
    """The first index at which value + noise is largest: a draw from the softmax of `values`.

    Logarithms are taken only where they can decide. Where the noise is large it is computed; the
    largest sum there, or at the largest value, is at least what wins, and any other index needs a
    value that small noise lifts to it.
    """
    largest = values.argmax()
    can_win = bits >= _LARGE_BITS
    can_win[largest] = True
    some = np.flatnonzero(can_win)
    least = (values[some] + gumbel(bits[some])).max()
    can_win |= values >= least - _LARGE_NOISE - _ROUNDING
    places = np.flatnonzero(can_win)
    return int(places[(values[places] + gumbel(bits[places])).argmax()])
