"""A decoder's operations on Triton kernels: on GPUs, and on the interpreter in tests.

What the kernels do not take, by shape or by name, is torch's from the start, and said.

Must not know: models. Importing it imports Triton; see operations.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from chiasm_worker.kernels.activation.reference import ACTIVATIONS
from chiasm_worker.kernels.activation.triton import activation_mul
from chiasm_worker.kernels.norm.triton import MAX_SIZE, rms_norm
from chiasm_worker.kernels.quantised_linear.packed import PackedWeight
from chiasm_worker.layers.linear import Linear, QuantisedLinear
from chiasm_worker.layers.mlp import Gated
from chiasm_worker.layers.norm import Norm
from chiasm_worker.layers.operations import TorchOperations

# Activations that have two names, and the kernel's word for them.
_ALSO_CALLED = {"swish": "silu"}


class TritonOperations:
    """Makes operations for a decoder that computes in `dtype`.

    Args:
        packed: weights that stay quantised, by their projections' names.
    """

    def __init__(
        self, dtype: torch.dtype, packed: Mapping[str, PackedWeight] | None = None
    ) -> None:
        self._dtype = dtype
        self._packed = dict(packed or {})
        self._torch = TorchOperations()
        # In order, each once: all layers of a model have the same.
        self._exceptions: dict[str, None] = {}

    @property
    def exceptions(self) -> Sequence[str]:
        """See Operations."""
        return tuple(self._exceptions)

    def linear(
        self, name: str, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> Linear | QuantisedLinear:
        """See Operations; a packed weight is given away, so that fusing holds no second copy."""
        packed = self._packed.pop(name, None)
        return Linear(weight, bias) if packed is None else QuantisedLinear(packed, bias)

    def norm(self, weight: torch.Tensor, eps: float, *, offset: bool) -> Norm:
        """See Operations."""
        size = weight.shape[-1]
        if size > MAX_SIZE:
            why = f"norms of {size} numbers are torch's: the kernel takes up to {MAX_SIZE}"
        elif weight.dtype != self._dtype:
            why = (
                f"norms with weights in {weight.dtype} are torch's: the kernel is proved for those "
                f"in the model's {self._dtype}"
            )
        else:
            return TritonNorm(weight, eps, offset=offset)
        self._exceptions[why] = None
        return self._torch.norm(weight, eps, offset=offset)

    def gated(self, activation: str) -> Gated:
        """See Operations."""
        name = _ALSO_CALLED.get(activation, activation)
        if name in ACTIVATIONS:
            return lambda gate_up: activation_mul(gate_up, name)
        in_torch = self._torch.gated(activation)
        why = f"activation {activation!r} is torch's: the kernel has {sorted(ACTIVATIONS)}"
        self._exceptions[why] = None
        return in_torch


class TritonNorm:
    """RMSNorm, and the sum before it, in one launch.

    Args:
        weight: [size].
        offset: the weight is stored as its distance from 1.
    """

    def __init__(self, weight: torch.Tensor, eps: float, *, offset: bool) -> None:
        self._weight = weight
        self._eps = eps
        self._offset = offset

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise x [..., size]."""
        rows = x.reshape(-1, x.shape[-1])
        normed, _ = rms_norm(rows, self._weight, self._eps, offset=self._offset)
        return normed.view(x.shape)

    def add(
        self, x: torch.Tensor | None, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Norm."""
        # Which of the two is added to the other makes no difference.
        return rms_norm(residual, self._weight, self._eps, x, offset=self._offset)
