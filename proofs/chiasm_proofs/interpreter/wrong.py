"""An operation that does everything wrong that equality.py must see; stands in for a real one.

Its kernel doubles x [num_rows, size], but adds how many rows there are, changes its argument,
writes into the hole behind each row, and lets two programs touch one place.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from chiasm_worker.kernels.case import Case, Draw, Inputs, Outputs, Tolerance


@triton.jit
def _wrong_kernel(x, out, stride, size, SIZE: tl.constexpr):
    row = tl.program_id(0)
    r = tl.arange(0, SIZE)
    value = tl.load(x + row * stride + r, mask=r < size, other=0.0)
    tl.store(out + row * size + r, value * 2.0 + tl.num_programs(0), mask=r < size)
    # The hole behind this row; for the last row its own end.
    tl.store(x + tl.where(row + 1 < tl.num_programs(0), row * stride + size, 0), 1.0)


def doubled(x: torch.Tensor) -> torch.Tensor:
    """What it should be."""
    return x * 2


def wrongly_doubled(x: torch.Tensor) -> torch.Tensor:
    """What it is."""
    out = torch.empty(x.shape, dtype=x.dtype)
    _wrong_kernel[(len(x),)](x, out, x.stride(0), x.shape[1], triton.next_power_of_2(x.shape[1]))
    return out


def _draw(random: Draw) -> Inputs:
    return {"x": random.memory.holding(random.normal(3, 5), hole=2)}


def _alone(inputs: Inputs, row: int) -> tuple[Inputs, Callable[[Outputs], Outputs]]:
    def select(outputs: Outputs) -> Outputs:
        return (outputs[0][row : row + 1],)

    return {"x": inputs["x"][row : row + 1]}, select


CASE = Case(
    "wrong",
    "doubled",
    _draw,
    Tolerance(1e-6, 1e-6, "one product"),
    lambda inputs: len(inputs["x"]),
    _alone,
)
