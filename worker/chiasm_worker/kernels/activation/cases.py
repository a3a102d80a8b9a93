"""What the activation is held to."""

from __future__ import annotations

from collections.abc import Callable

import torch

from chiasm_worker.kernels.case import Build, Case, Draw, Inputs, Outputs, Tolerance
from chiasm_worker.kernels.work import Work, moved

_BF16, _FP16, _FP32 = torch.bfloat16, torch.float16, torch.float32
_ROUNDING = {
    _FP32: Tolerance(
        4e-6, 1e-5, "1 + tanh cancels in torch where the result is near 0: 2^-24 times |x| < 20"
    ),
    _BF16: Tolerance(1e-3, 1.6e-2, "two roundings to bf16 (2^-8 each) may fall to the other side"),
    _FP16: Tolerance(1e-4, 2e-3, "two roundings to fp16 (2^-11 each), as above"),
}


def _alone(inputs: Inputs, row: int) -> tuple[Inputs, Callable[[Outputs], Outputs]]:
    rows = slice(row, row + 1)
    return {**inputs, "gate_up": inputs["gate_up"][rows]}, lambda out: (out[0][rows],)


def _draw(
    activation: str, dtype: torch.dtype, num_rows: int, size: int
) -> Callable[[Draw], Inputs]:
    def draw(random: Draw) -> Inputs:
        values = random.normal(num_rows, 2 * size, scale=3).to(dtype)
        return {
            "gate_up": random.memory.holding(values, random.integer(0, 9)),
            "activation": activation,
        }

    return draw


def _case(
    activation: str, dtype: torch.dtype, num_rows: int, size: int, quick: bool = False
) -> Case:
    return Case(
        f"{activation} {num_rows}x{size} {str(dtype)[6:]}",
        "activation_mul",
        _draw(activation, dtype, num_rows, size),
        _ROUNDING[dtype],
        lambda inputs: len(inputs["gate_up"]),
        _alone,
        quick=quick,
    )


CASES = (
    _case("silu", _BF16, 4, 100, quick=True),
    _case("gelu_pytorch_tanh", _FP32, 3, 257, quick=True),
    _case("gelu", _FP16, 2, 1, quick=True),
    _case("relu", _BF16, 0, 8),
    _case("silu", _FP32, 5, 1025),
    _case("gelu_pytorch_tanh", _BF16, 1, 3000),
    _case("relu", _FP16, 6, 33),
)

_TYPES = {
    "gate_up": "*bf16", "out": "*bf16", "gate_up_stride": "i32", "out_stride": "i32", "size": "i32",
}  # fmt: skip
BUILDS = tuple(
    Build(
        name,
        "activation_mul_kernel",
        _TYPES,
        {"ACTIVATION": name},
        ("activation", "default"),
        list(_TYPES),
        quick=name == "silu",
    )
    for name in ("silu", "relu", "gelu", "gelu_pytorch_tanh")
)

WORK = (
    Work(
        "silu 8192x14336",
        "activation_mul",
        _draw("silu", _BF16, 8192, 14336),
        _draw("silu", _BF16, 4, 100),
        "copy",
        moved("gate_up"),
        0.85,
    ),
)
