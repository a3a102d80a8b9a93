"""RMSNorm and LayerNorm in torch.

residual' = x + residual, rounded                       (where there is a residual)
RMSNorm   y = round(residual' / rms(residual')) * weight    as in transformers
Gemma's   y = round(residual' / rms(residual') * (1 + weight)), all in fp32
LayerNorm y = round((residual' - mean) / std * weight + bias), all in fp32
"""

from __future__ import annotations

import torch


def _summed(x: torch.Tensor, residual: torch.Tensor | None) -> torch.Tensor:
    return x if residual is None else x + residual


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    residual: torch.Tensor | None = None,
    *,
    offset: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalised rows, and the sum that was normalised.

    Args:
        x: [num_rows, size]; residual likewise.
        weight: [size].
        offset: Gemma's form, 1 + weight in fp32.
    """
    summed = _summed(x, residual)
    wide = summed.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    if offset:
        return (normed * (1.0 + weight.float())).to(x.dtype), summed
    return normed.to(x.dtype) * weight, summed


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
    residual: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalised rows, and the sum that was normalised; arguments as in `rms_norm`."""
    summed = _summed(x, residual)
    wide = summed.float()
    centred = wide - wide.mean(-1, keepdim=True)
    normed = centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)
    return (normed * weight.float() + bias.float()).to(x.dtype), summed
