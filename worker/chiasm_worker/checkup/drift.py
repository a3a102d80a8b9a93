"""How far the logits of the fast path are from those of the plain one, and how far they may be.

Both compute the same sums in another order, so they differ by rounding and by nothing else. How
much that is depends on the model, its depth and its type of numbers, so it is measured: the plain
path computes the same sequence twice, the second time beside a copy of itself, with its keys in
reverse order and what each layer's attention makes moved by one unit in its last place up or down.
The largest difference of any logit is the `noise`.

    limit = max(6 x noise, 2 x eps x largest logit)

On 33 models of 14 families in float32 and bfloat16 the fast path was 0.5 to 2.1 times the noise
away from the plain one (docs/log.md): 6 is about three times the most that was seen. The second
term is two units in the last place of the largest logit, should both orders happen to agree. In
float32 a wrong position or a missing key is far above that; in narrow types only what exceeds their
rounding can be told.

KL has no limit of its own: if no logit differs by more than d, KL is at most d^2 / 2 (Hoeffding's
lemma), so it cannot be too high while the logits are right. It says how bad a drift is.

Must not know: torch, engines, where the numbers come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float64]

STEPS = (1, 5, 10)
"""The tokens of an answer that are compared: behind the prompt, and when caches have grown."""


@dataclass(frozen=True, slots=True)
class StepDrift:
    """One token of one answer.

    Attributes:
        way: how the fast path came to it.
        step: which token of the answer.
        max_abs: the largest difference of a logit.
        kl: of the fast path's choice from the plain one's, in nats.
        margin: by how much the plain path prefers its first choice to its second.
        is_same: whether both paths would choose the same token.
    """

    way: str
    step: int
    max_abs: float
    kl: float
    margin: float
    is_same: bool


@dataclass(frozen=True, slots=True)
class Drift:
    """All that was compared, and what is allowed."""

    noise: float
    limit: float
    steps: tuple[StepDrift, ...]

    @property
    def beyond(self) -> tuple[StepDrift, ...]:
        """Those beyond the limit."""
        return tuple(step for step in self.steps if not step.max_abs <= self.limit)

    @property
    def flipped(self) -> tuple[StepDrift, ...]:
        """Those that would choose another token though rounding could not make them."""
        return tuple(s for s in self.beyond if not s.is_same and s.margin > 2 * self.limit)


@dataclass(frozen=True, slots=True)
class Truth:
    """What the plain path says of one answer's compared tokens, in two orders of its sums."""

    rows: Sequence[Logits]
    again: Sequence[Logits]

    @property
    def noise(self) -> float:
        """The largest difference between the two."""
        return max(float(np.abs(a - b).max()) for a, b in zip(self.rows, self.again, strict=True))

    @property
    def largest(self) -> float:
        """The largest logit."""
        return max(float(np.abs(row).max()) for row in self.rows)


def compared(way: str, step: int, fast: Logits, plain: Logits) -> StepDrift:
    """One token's logits [vocab_size] of both paths."""
    first, second = np.partition(plain, -2)[-1], np.partition(plain, -2)[-2]
    with np.errstate(invalid="ignore"):  # what is no number is beyond every limit
        max_abs = float(np.abs(fast - plain).max())
        log_plain, log_fast = _log_softmax(plain), _log_softmax(fast)
        kl = float((np.exp(log_plain) * (log_plain - log_fast)).sum())
    is_same = int(fast.argmax()) == int(plain.argmax())
    return StepDrift(way, step, max_abs, max(kl, 0.0), float(first - second), is_same)


def limit_of(noise: float, largest_logit: float, eps: float) -> float:
    """What rounding may do.

    Args:
        eps: the distance from 1 to the next number of the type that is computed in.
    """
    return max(6 * noise, 2 * eps * largest_logit)


def _log_softmax(row: Logits) -> Logits:
    shifted = row - row.max()
    total: Logits = shifted - np.log(np.exp(shifted).sum())
    return total
