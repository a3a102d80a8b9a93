"""Root-mean-square normalisation."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention

Norm = Callable[[torch.Tensor], torch.Tensor]


class RMSNorm:
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


class OffsetRMSNorm:
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
