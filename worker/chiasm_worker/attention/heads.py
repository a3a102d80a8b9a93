"""What becomes of heads before they attend: q and k normalised and rotated.

    heads [num_tokens, num_heads + 2 * num_kv_heads, head_dim]: q, then K, then V, as projected

Must not know: blocks, where positions and weights come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class Rotation:
    """Cosines and signed sines of one step, [num_tokens, 1, head_dim] each."""

    cos: torch.Tensor
    sin: torch.Tensor

    @classmethod
    def none(cls, heads: torch.Tensor) -> Rotation:
        """The one that leaves `heads` as they are."""
        still = heads.new_ones(heads.shape[0], 1, heads.shape[2])
        return cls(still, torch.zeros_like(still))

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """Rotate x [num_tokens, num_heads, head_dim].

        The sine of the first half is negative, so that rolling by half a head stands for
        transformers' `rotate_half`.
        """
        half = x.shape[-1] // 2
        return torch.addcmul(x * self.cos, x.roll(half, -1), self.sin)


class HeadNorm(Protocol):
    """RMSNorm of each head of q and of k: its weights for kernels, its arithmetic for torch.

    Attributes:
        q: [head_dim], the weight of each head of q; k likewise.
        offset: weights are stored as their distance from 1, and everything is in fp32.
    """

    q: torch.Tensor
    k: torch.Tensor
    eps: float
    offset: bool

    def __call__(self, qk: torch.Tensor) -> torch.Tensor:
        """Normalise qk [num_tokens, num_heads + num_kv_heads, head_dim]."""
        ...


def prepare(
    heads: torch.Tensor, num_kv_heads: int, rotation: Rotation, norm: HeadNorm | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """q [num_tokens, num_heads, head_dim] and kv [num_tokens, 2, num_kv_heads, head_dim]."""
    num_qk = heads.shape[1] - num_kv_heads
    qk, v = heads[:, :num_qk], heads[:, num_qk:]
    if norm is not None:
        qk = norm(qk)
    qk = rotation.apply(qk)
    num_heads = num_qk - num_kv_heads
    return qk[:, :num_heads], torch.stack((qk[:, num_heads:], v), dim=1)
