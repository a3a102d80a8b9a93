"""Matrix products, with projections of the same input fused into one, quantised ones too.

On CPUs a bfloat16 weight is laid out once as oneDNN's kernels read it. Measured on AVX-512 cores
without AMX, 3584 x 640: 0.6 to 0.7 of the time for 2 to 16 rows, which is what several requests
decoding together need, and the same for one row and for 180.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention

from chiasm_worker.kernels.quantised_linear.packed import PackedWeight, concatenate, dequantise

Projection = Callable[[torch.Tensor], torch.Tensor]
"""[num_tokens, in_features] -> [num_tokens, out_features]."""

_LAID_OUT_FOR_ROWS = 8


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

    def packed(self) -> Projection:
        """The same product with the weight laid out for this machine, where that is faster."""
        on_cpu = self.weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
        return PackedLinear(self) if on_cpu and self.weight.dtype == torch.bfloat16 else self


class PackedLinear:
    """A Linear on a CPU whose weight only oneDNN can read."""

    def __init__(self, linear: Linear) -> None:
        reorder = torch.ops.mkldnn._reorder_linear_weight
        self._weight: torch.Tensor = reorder(linear.weight.contiguous(), _LAID_OUT_FOR_ROWS)
        self._bias = linear.bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to x [num_tokens, in_features]."""
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._weight, self._bias, "none", [], ""
        )
        return product


class QuantisedLinear:
    """A Linear whose weight stays in 4 or 8 bits; computed by the kernel that reads them.

    Args:
        weight: of [out_features, in_features].
        bias: [out_features] or None.
    """

    def __init__(self, weight: PackedWeight, bias: torch.Tensor | None = None) -> None:
        # Importing it imports Triton, which is not everywhere.
        from chiasm_worker.kernels.quantised_linear.triton import (  # noqa: PLC0415
            quantised_linear,
        )

        self.weight = weight
        self.bias = bias
        self._product = quantised_linear

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to x [num_tokens, in_features]."""
        return self._product(x, self.weight, self.bias)

    def packed(self) -> Projection:
        """Itself: its weight is laid out already."""
        return self

    def dense(self, dtype: torch.dtype) -> Linear:
        """The same with its weight dequantised."""
        return Linear(dequantise(self.weight).to(dtype), self.bias)


def fuse(parts: Sequence[Linear | QuantisedLinear]) -> Linear | QuantisedLinear:
    """One Linear whose output is the concatenation of the parts' outputs.

    Quantised parts stay so where all of them are.
    """
    bias = _side_by_side([part.bias for part in parts])
    quantised = [part for part in parts if isinstance(part, QuantisedLinear)]
    if len(quantised) == len(parts):
        return QuantisedLinear(concatenate([part.weight for part in quantised]), bias)
    plain = [part for part in parts if isinstance(part, Linear)]
    plain = [p if isinstance(p, Linear) else p.dense(plain[0].weight.dtype) for p in parts]
    return Linear(torch.cat([part.weight for part in plain]), bias)


def _side_by_side(biases: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """One bias of several, or of none."""
    given = [bias for bias in biases if bias is not None]
    if not given:
        return None
    if len(given) < len(biases):
        raise ValueError("Projections with and without bias cannot be fused into one.")
    return torch.cat(given)
