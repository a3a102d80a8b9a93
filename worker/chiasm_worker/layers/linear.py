"""Matrix products, with projections of the same input fused into one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention


class Linear:
    """x @ weight.T + bias.

    Args:
        weight: [out_features, in_features].
        bias: [out_features] or None.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to x [num_tokens, in_features]."""
        return F.linear(x, self.weight, self.bias)


def fuse(parts: Sequence[Linear]) -> Linear:
    """One Linear whose output is the concatenation of the parts' outputs."""
    biases = [part.bias for part in parts]
    if any(bias is None for bias in biases):
        if any(bias is not None for bias in biases):
            raise ValueError("Projections with and without bias cannot be fused into one.")
        bias = None
    else:
        bias = torch.cat([bias for bias in biases if bias is not None])
    return Linear(torch.cat([part.weight for part in parts]), bias)
