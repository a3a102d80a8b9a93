"""Root-mean-square normalisation: what a decoder asks for, and torch's arithmetic."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention


class Norm(Protocol):
    """Normalisation over the last axis."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise x [..., size]."""
        ...

    def add(
        self, x: torch.Tensor | None, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(the sum normalised, the sum) of residual and x [num_tokens, size]; None adds nothing."""
        ...


class _TorchNorm:
    """Adds, then normalises."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def add(
        self, x: torch.Tensor | None, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Norm."""
        summed = residual if x is None else residual + x
        return self(summed), summed


class RMSNorm(_TorchNorm):
    """x / rms(x) * weight over the last axis.

    As in transformers the quotient is computed in fp32 and rounded before the weight multiplies.

    Args:
        weight: [..., size]; may have leading axes to weight each head on its own.
    """

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self._weight = weight
        self._shape = weight.shape[-1:]
        self._eps = eps
        self._fused = weight.dtype == torch.float32 and weight.dim() == 1

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise x [..., size]."""
        if self._fused:
            return F.rms_norm(x, self._shape, self._weight, self._eps)
        normed = F.rms_norm(x.float(), self._shape, None, self._eps)
        return normed.to(x.dtype) * self._weight


class OffsetRMSNorm(_TorchNorm):
    """x / rms(x) * (1 + weight) over the last axis, all of it in fp32: Gemma's.

    Args:
        weight: [..., size]; may have leading axes to weight each head on its own.
    """

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self._scale = 1.0 + weight.float()
        self._shape = weight.shape[-1:]
        self._eps = eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise x [..., size]."""
        if self._scale.dim() == 1:
            return F.rms_norm(x.float(), self._shape, self._scale, self._eps).to(x.dtype)
        return (F.rms_norm(x.float(), self._shape, None, self._eps) * self._scale).to(x.dtype)


class HeadRMSNorm:
    """The norm of each head of q and k; see HeadNorm.

    Args:
        q: [head_dim], of each of the `num_heads` heads of q; k of the `num_kv_heads` of K.
    """

    def __init__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        num_heads: int,
        num_kv_heads: int,
        eps: float,
        *,
        offset: bool,
    ) -> None:
        self.q, self.k, self.eps, self.offset = q, k, eps, offset
        # q and k are adjacent heads of one tensor: one norm with a weight row per head.
        rows = torch.cat((q.expand(num_heads, -1), k.expand(num_kv_heads, -1)))
        self._norm = (OffsetRMSNorm if offset else RMSNorm)(rows, eps)

    def __call__(self, qk: torch.Tensor) -> torch.Tensor:
        """Normalise qk [num_tokens, num_heads + num_kv_heads, head_dim]."""
        return self._norm(qk)
