"""The gated feed-forward block: act(gate(x)) * up(x), projected back."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention

from chiasm_worker.kernels.activation import reference
from chiasm_worker.layers.linear import Projection

Activation = Callable[[torch.Tensor], torch.Tensor]
Gated = Callable[[torch.Tensor], torch.Tensor]
"""act(gate) * up [num_tokens, size] of [num_tokens, 2 * size], the gate's half first."""

ACTIVATIONS: dict[str, Activation] = {**reference.ACTIVATIONS, "swish": F.silu}


def activation(name: str) -> Activation:
    """The activation function of that name.

    Raises: ValueError naming the known ones.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"Activation {name!r} is not known; known are {sorted(ACTIVATIONS)}.")
    return ACTIVATIONS[name]


def gated(name: str) -> Gated:
    """The product with the activation of that name, in torch.

    Raises: ValueError naming the known ones.
    """
    act = activation(name)

    def product(gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return act(gate) * up

    return product


class GatedMLP:
    """One layer's feed-forward block.

    Args:
        gate_up: projection to [2 * intermediate_size], the gate's half first.
        down: projection back to [hidden_size].
    """

    def __init__(self, gate_up: Projection, down: Projection, gated: Gated) -> None:
        self._gate_up = gate_up
        self._down = down
        self._gated = gated

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to x [num_tokens, hidden_size]."""
        return self._down(self._gated(self._gate_up(x)))
