"""What the softmax is held to."""

from __future__ import annotations

from collections.abc import Callable

import torch

from chiasm_worker.kernels.case import Build, Case, Draw, Inputs, Outputs, Tolerance
from chiasm_worker.kernels.work import Work, moved

_CLOSE = Tolerance(
    1e-7, 2e-5, "exp2 of x·log2(e) beside exp of x: the product's rounding, 2^-24 times |x| < 100"
)


def _alone(inputs: Inputs, row: int) -> tuple[Inputs, Callable[[Outputs], Outputs]]:
    rows = slice(row, row + 1)
    return {**inputs, "logits": inputs["logits"][rows]}, lambda out: (out[0][rows],)


def _draw(
    dtype: torch.dtype, num_rows: int, size: int, scale: float, hidden: bool
) -> Callable[[Draw], Inputs]:
    def draw(random: Draw) -> Inputs:
        values = random.normal(num_rows, size, scale=8)
        if hidden:
            values[random.uniform(num_rows, size) < 0.3] = float("-inf")
            values[0] = float("-inf")
        held = random.memory.holding(values.to(dtype), random.integer(0, 5))
        return {"logits": held, "scale": scale}

    return draw


def _case(
    dtype: torch.dtype, num_rows: int, size: int, scale: float, hidden: bool, quick: bool = False
) -> Case:
    hides = " hidden" if hidden else ""
    return Case(
        f"{num_rows}x{size} {str(dtype)[6:]}{hides}",
        "softmax",
        _draw(dtype, num_rows, size, scale, hidden),
        _CLOSE,
        lambda inputs: len(inputs["logits"]),
        _alone,
        quick=quick,
    )


_BF16, _FP32 = torch.bfloat16, torch.float32
CASES = (
    _case(_FP32, 3, 700, 0.7, hidden=True, quick=True),
    _case(_BF16, 2, 1, 1.0, hidden=False, quick=True),
    _case(_BF16, 4, 513, 1.3, hidden=True),
    _case(_FP32, 0, 5, 1.0, hidden=False),
    _case(_FP32, 2, 5000, 1.0, hidden=False),
)

_TYPES = {
    "logits": "*fp32", "out": "*fp32", "logits_stride": "i32", "out_stride": "i32", "size": "i32",
    "factor": "fp32",
}  # fmt: skip
BUILDS = (
    Build(
        "fp32",
        "softmax_kernel",
        _TYPES,
        {},
        ("softmax", "default"),
        [n for n in _TYPES if n != "factor"],
        quick=True,
    ),
)

WORK = (
    Work(
        "512x151936 fp32",
        "softmax",
        _draw(_FP32, 512, 151936, 0.7, hidden=False),
        _draw(_FP32, 3, 700, 0.7, hidden=False),
        "copy",
        moved("logits"),
        0.85,
    ),
)
