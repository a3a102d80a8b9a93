"""What of a kernel is timed on a GPU: arguments as large as a server's, and what they must move.

Plain descriptions beside the cases; who runs the clock is outside this package.

Must not know: Triton, clocks, other implementations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Literal

import torch

from chiasm_worker.kernels.case import Draw, Inputs, Outputs

# What bounds a kernel: the rate at which memory is copied, or at which matrices are multiplied.
Ceiling = Literal["copy", "matmul"]


@dataclass(frozen=True)
class Work:
    """One launch that is timed.

    Attributes:
        draw: the arguments by name, as large as a server's.
        small: the like, small enough for any machine; tests hold other implementations to them.
        amount: (arguments, outputs) -> bytes that must move (both ways), or operations.
        goal: share of the ceiling.
    """

    name: str
    function: str
    draw: Callable[[Draw], Inputs]
    small: Callable[[Draw], Inputs]
    ceiling: Ceiling
    amount: Callable[[Inputs, Outputs], int]
    goal: float


class Plain:
    """Memory without poison and holes, as a server has it; see case.Memory."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def empty(self, shape: Sequence[int], dtype: torch.dtype, hole: int = 0) -> torch.Tensor:
        """Zeros, as the pool is before its first use."""
        del hole
        return torch.zeros(tuple(shape), dtype=dtype, device=self.device)

    def holding(self, values: torch.Tensor, hole: int = 0) -> torch.Tensor:
        """A copy of `values`, contiguous."""
        del hole
        return values.to(self.device, copy=True).contiguous()

    def far(self, shape: Sequence[int], dtype: torch.dtype, stride: int) -> torch.Tensor:
        """As `empty`: speed does not depend on how far blocks lie apart."""
        del stride
        return self.empty(shape, dtype)


def bytes_of(*tensors: torch.Tensor) -> int:
    """What it takes to read or write all of them once."""
    return sum(tensor.numel() * tensor.itemsize for tensor in tensors)


def moved(*names: str) -> Callable[[Inputs, Outputs], int]:
    """The amount of a kernel that reads those arguments and writes all its outputs, once each."""

    def amount(inputs: Inputs, outputs: Outputs) -> int:
        return bytes_of(*(inputs[name] for name in names if name in inputs), *outputs)

    return amount


def work_of(operation: str) -> tuple[Work, ...]:
    """What of an operation is timed."""
    package = __package__ or ""
    return tuple(import_module(f"{package}.{operation}.cases").WORK)
