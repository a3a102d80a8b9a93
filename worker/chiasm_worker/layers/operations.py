"""What a decoder computes beside its attention, made by one implementation.

Who computes is chosen before (attention/choose.py); here the operations are made of it, once, while
a model is loaded, so that nothing is left to decide at a launch.

Must not know: models, how an implementation computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from chiasm_worker.attention.choose import Choice
from chiasm_worker.kernels.quantised_linear.packed import PackedWeight
from chiasm_worker.layers.linear import Linear, QuantisedLinear
from chiasm_worker.layers.mlp import Gated, gated
from chiasm_worker.layers.norm import Norm, OffsetRMSNorm, RMSNorm


class Operations(Protocol):
    """An implementation's maker of operations."""

    @property
    def exceptions(self) -> Sequence[str]:
        """Which of those made so far torch computes all the same, with the reason."""
        ...

    def linear(
        self, name: str, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> Linear | QuantisedLinear:
        """The decoder's projection of that name.

        Args:
            weight: [out_features, in_features]; empty where it stays quantised.
            bias: [out_features] or None.
        """
        ...

    def norm(self, weight: torch.Tensor, eps: float, *, offset: bool) -> Norm:
        """RMSNorm with weight [size].

        Args:
            offset: the weight is stored as its distance from 1: Gemma's.
        """
        ...

    def gated(self, activation: str) -> Gated:
        """The product with the activation of that name.

        Raises: ValueError naming the known ones.
        """
        ...


class TorchOperations:
    """Torch's, on any device."""

    exceptions: Sequence[str] = ()

    def linear(self, name: str, weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
        """See Operations."""
        return Linear(weight, bias)

    def norm(self, weight: torch.Tensor, eps: float, *, offset: bool) -> Norm:
        """See Operations."""
        return (OffsetRMSNorm if offset else RMSNorm)(weight, eps)

    def gated(self, activation: str) -> Gated:
        """See Operations."""
        return gated(activation)


def operations_of(
    choice: Choice, dtype: torch.dtype, packed: Mapping[str, PackedWeight] | None = None
) -> Operations:
    """The chosen implementation's, for a decoder that computes in `dtype`.

    Args:
        packed: weights that stay quantised, by their projections' names; Triton's kernels only.
    """
    if choice.name == "torch":
        return TorchOperations()
    # Importing it imports Triton, which is not everywhere.
    from chiasm_worker.layers.triton_operations import TritonOperations  # noqa: PLC0415

    return TritonOperations(dtype, packed)
