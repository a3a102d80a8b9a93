"""The one interface between a decoder and whatever computes attention.

A step is a packed batch without padding: the new tokens of all its requests back to back
(``num_tokens`` rows). Row r of a request attends to the request's tokens at positions up to its
own, whose K and V lie in the blocks of its table; the new ones are written there first. What is
given is heads as they were projected: normalising and rotating q and k belongs to the step, because
one kernel does it with the write (heads.py). Two things may be added, both as plain numbers:

    bidirectional spans   tokens of one span see one another, also those behind them
    cross-attention       some layers attend not to the text but to K and V of media items, which
                          lie in blocks of their own and are written before the step

A span is never cut: all its tokens are computed by the end of the chunk that holds one of them.

Must not know: models, the scheduler, sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from chiasm_contract.errors import InvariantError

from chiasm_worker.attention.heads import HeadNorm, Rotation


@dataclass(frozen=True, slots=True)
class CrossSource:
    """K and V of one media item for the cross-attention layers.

    Tokens start..end-1 of the request see the first `num_visible` of its `num_vectors`. A token
    that sees no item at all attends to every vector of every item: so does transformers, where a
    row whose mask hides everything is given an empty mask.
    """

    block_ids: Sequence[int]
    num_vectors: int
    num_visible: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SequenceChunk:
    """The new tokens of one request in a step.

    Attributes:
        bidirectional: the spans (start, end) that hold new tokens, in order, disjoint.
        cross: the media items that these tokens read in the cross-attention layers.
    """

    num_computed_tokens: int
    num_new_tokens: int
    block_ids: Sequence[int]
    bidirectional: Sequence[tuple[int, int]] = ()
    cross: Sequence[CrossSource] = ()

    def __post_init__(self) -> None:
        for start, end in self.bidirectional:
            if end > self.seq_len or start < self.num_computed_tokens < end:
                raise InvariantError(
                    f"The chunk of tokens {self.num_computed_tokens}..{self.seq_len - 1} cuts the "
                    f"span {start}..{end - 1}, whose tokens see one another; bug."
                )

    @property
    def seq_len(self) -> int:
        """Tokens that the last new token attends to, itself included."""
        return self.num_computed_tokens + self.num_new_tokens


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """What one layer needs to know beyond its heads."""

    # Which layer of the blocks: self- and cross-attention layers are counted apart.
    index: int
    scale: float
    # Tokens a query may look back to, itself included; 0 means all.
    sliding_window: int = 0
    # Whether tokens of one span see one another beyond the window too.
    spans_pass_window: bool = False
    # Scores s become cap * tanh(s / cap) before the mask; 0 means no cap.
    soft_cap: float = 0.0


@dataclass(frozen=True, slots=True)
class CrossRows:
    """The rows of a batch that read media items in the cross-attention layers.

    Attributes:
        index: [num_rows] int64, which rows of the batch.
        sees: [num_rows, 1] bool, False for a row that lies in no item's range.
    """

    index: torch.Tensor
    sees: torch.Tensor


class AttentionStep(Protocol):
    """Attention of one packed batch; made once per step, called once per layer."""

    @property
    def cross_rows(self) -> CrossRows | None:
        """The rows that `cross` is for; None when no request of the batch reads media items."""
        ...

    def forward(
        self,
        layer: AttentionLayer,
        heads: torch.Tensor,
        rotation: Rotation,
        norm: HeadNorm | None = None,
    ) -> torch.Tensor:
        """Normalise and rotate q and k, write the new K and V, then attend.

        Args:
            layer: which layer's K and V to write and read.
            heads: [num_tokens, num_heads + 2 * num_kv_heads, head_dim]: q, then K, then V.
            norm: of each head of q and k, before the rotation; None: there is none.

        Returns: [num_tokens, num_heads * head_dim].
        """
        ...

    def cross(self, layer: AttentionLayer, q: torch.Tensor) -> torch.Tensor:
        """Attend to the media items of each row's request.

        Args:
            q: [num_cross_rows, num_heads, head_dim], the batch's `cross_rows` in order.

        Returns: [num_cross_rows, num_heads * head_dim].
        """
        ...


class AttentionBackend(Protocol):
    """An implementation of attention over an arena."""

    # Names the rounding class in the identity: vectors of different classes are not mixed.
    numerics: str

    def begin(self, chunks: Sequence[SequenceChunk]) -> AttentionStep:
        """Prepare the index tensors of one step."""
        ...
