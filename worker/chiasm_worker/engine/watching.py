"""What a step is given, for somebody who looks on: nothing is watched unless somebody is.

A watcher must not raise, must not change what it is shown and must be quick: running answers wait
for it.

Must not know: what is made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from chiasm_worker.attention.base import AttentionStep, SequenceChunk
from chiasm_worker.models.decoder import MediaRows
from chiasm_worker.sched.batch import Chunk


@dataclass(frozen=True, slots=True)
class StepGiven:
    """One step, as it was chosen and as it is computed.

    Attributes:
        planned: what the scheduler chose.
        given: what attention is given for it, in the same order.
        positions: [num_axes, num_tokens], what the decoder is given.
        media: the rows that take an encoder's output.
    """

    planned: Sequence[Chunk]
    given: Sequence[SequenceChunk]
    positions: npt.NDArray[np.int64]
    media: MediaRows | None


class StepWatcher(Protocol):
    """Looks on while the engine computes; called by the engine's thread."""

    def step(self, given: StepGiven, attention: AttentionStep) -> AttentionStep:
        """A step begins. Returns the attention to compute it with: the same, or around it."""
        ...

    def logits(self, request_ids: Sequence[str], logits: torch.Tensor) -> None:
        """The step's logits, one row for each request that samples."""
        ...
