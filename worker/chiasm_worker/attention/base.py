"""The one interface between a decoder and whatever computes attention.

A step is a packed batch without padding: the new tokens of all its requests back to back
(``num_tokens`` rows). Row r of a request attends to the request's tokens at positions up to its
own, whose K and V lie in the blocks of its table; the new ones are written there first.

Must not know: models, the scheduler, sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class SequenceChunk:
    """The new tokens of one request in a step."""

    num_computed_tokens: int
    num_new_tokens: int
    block_ids: Sequence[int]

    @property
    def seq_len(self) -> int:
        """Tokens that the last new token attends to, itself included."""
        return self.num_computed_tokens + self.num_new_tokens


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """What one layer needs to know beyond q, k and v."""

    index: int
    scale: float
    # Tokens a query may look back to, itself included; 0 means all.
    sliding_window: int = 0


class AttentionStep(Protocol):
    """Attention of one packed batch; made once per step, called once per layer."""

    def forward(self, layer: AttentionLayer, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        """Write the new K and V, then attend.

        Args:
            layer: which layer's K and V to write and read.
            q: [num_tokens, num_heads, head_dim].
            kv: [num_tokens, 2, num_kv_heads, head_dim], K before V.

        Returns: [num_tokens, num_heads * head_dim].
        """
        ...


class AttentionBackend(Protocol):
    """An implementation of attention over an arena."""

    # Names the rounding class in the identity: vectors of different classes are not mixed.
    numerics: str

    def begin(self, chunks: Sequence[SequenceChunk]) -> AttentionStep:
        """Prepare the index tensors of one step."""
        ...
