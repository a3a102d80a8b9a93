"""The gated feed-forward block: act(gate(x)) * up(x), projected back."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention

from chiasm_worker.layers.linear import Projection

Activation = Callable[[torch.Tensor], torch.Tensor]

ACTIVATIONS: dict[str, Activation] = {
    "silu": F.silu,
    "swish": F.silu,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def activation(name: str) -> Activation:
    """The activation function of that name.

    Raises: ValueError naming the known ones.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"Activation {name!r} is not known; known are {sorted(ACTIVATIONS)}.")
    return ACTIVATIONS[name]


class GatedMLP:
    """One layer's feed-forward block.

    Args:
        gate_up: projection to [2 * intermediate_size], the gate's half first.
        down: projection back to [hidden_size].
    """

    def __init__(self, gate_up: Projection, down: Projection, act: Activation) -> None:
        self._gate_up = gate_up
        self._down = down
        self._act = act

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to x [num_tokens, hidden_size]."""
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self._down(self._act(gate) * up)
