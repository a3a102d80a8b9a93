"""act(gate) * up in torch; act(gate) is rounded before the product, as in transformers."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def activation_mul(gate_up: torch.Tensor, activation: str) -> torch.Tensor:
    """[num_rows, size] of gate_up [num_rows, 2 * size], the gate's half first."""
    gate, up = gate_up.chunk(2, dim=-1)
    return ACTIVATIONS[activation](gate) * up
