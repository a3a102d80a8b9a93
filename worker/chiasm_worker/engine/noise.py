"""Random numbers that are a function of where they are needed, not of what was drawn before.

A token's noise depends on the request's seed, the choice, the position in its answer and the
token, and on nothing else: no generator is advanced, so neighbours, chunks and preemption leave a
request's draws as they are. Choosing the token whose `logit + noise` is largest draws from the
softmax (the Gumbel-max trick). Rounding that differs from batch to batch moves a draw only where
two tokens are within it of a tie; walking along cumulated probabilities would let every rounding
of every token before the chosen one move it.

Must not know: logits, parameters.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import numpy.typing as npt

# splitmix64's increment and multipliers.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def gumbel(
    seed: int, choice: int, position: int, token_ids: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Independent standard Gumbel noise, one for each of `token_ids`; always finite."""
    uniform = _uniform(seed, choice, position, token_ids)
    noise: npt.NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise


def _uniform(
    seed: int, choice: int, position: int, token_ids: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Uniform numbers inside (0, 1), neither end included."""
    place = struct.pack("<Qqq", seed % 2**64, choice, position)
    start, second = struct.unpack("<QQ", hashlib.blake2b(place, digest_size=16).digest())
    bits = _mix(token_ids.astype(np.uint64) * _STEP + np.uint64(start))
    bits = _mix(bits + np.uint64(second))
    # 52 bits and a half: 53 would round up to 1.
    uniform: npt.NDArray[np.float64] = (bits >> np.uint64(12)).astype(np.float64)
    return (uniform + 0.5) * 2.0**-52


def _mix(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """splitmix64's finaliser: every bit of the input moves half of the output's."""
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    mixed: npt.NDArray[np.uint64] = bits ^ (bits >> np.uint64(31))
    return mixed
