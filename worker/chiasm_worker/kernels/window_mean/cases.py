"""What pooling is held to."""

from __future__ import annotations

from collections.abc import Callable

import torch

from chiasm_worker.kernels.case import Build, Case, Draw, Inputs, Outputs, Tolerance
from chiasm_worker.kernels.work import Work, bytes_of

_BF16, _FP16, _FP32 = torch.bfloat16, torch.float16, torch.float32
_ROUNDING = {
    _FP32: Tolerance(1e-6, 1e-6, "at most 16 values summed in another order"),
    _BF16: Tolerance(1e-3, 8e-3, "one rounding to bf16 (2^-8) may fall to the other side"),
    _FP16: Tolerance(1e-4, 1e-3, "one rounding to fp16 (2^-11), as above"),
}


def _draw(
    num_tokens: int, width: int, shape: tuple[int, int], dtype: torch.dtype
) -> Callable[[Draw], Inputs]:
    def draw(random: Draw) -> Inputs:
        features = random.normal(num_tokens, width).to(dtype)
        held = (random.uniform(*shape) * num_tokens).to(torch.int32)
        # Every window holds a token at least.
        held[:, 1:][random.uniform(shape[0], shape[1] - 1) < 0.3] = -1
        return {
            "features": random.memory.holding(features, hole=random.integer(0, 9)),
            "windows": random.memory.holding(held, hole=3),
        }

    return draw


def _case(
    num_tokens: int, width: int, shape: tuple[int, int], dtype: torch.dtype, quick: bool = False
) -> Case:
    return Case(
        f"{shape[0]} of {shape[1]}, {width} {str(dtype)[6:]}",
        "window_mean",
        _draw(num_tokens, width, shape, dtype),
        _ROUNDING[dtype],
        lambda inputs: len(inputs["windows"]),
        _alone,
        quick=quick,
    )


def _alone(inputs: Inputs, row: int) -> tuple[Inputs, Callable[[Outputs], Outputs]]:
    rows = slice(row, row + 1)
    return {**inputs, "windows": inputs["windows"][rows]}, lambda out: (out[0][rows],)


CASES = (
    _case(30, 70, (8, 4), _BF16, quick=True),
    _case(64, 33, (4, 16), _FP32, quick=True),
    _case(9, 1025, (2, 8), _FP16),
    _case(1, 1, (1, 1), _FP32),
    _case(5, 16, (0, 4), _BF16),
)

_TYPES = {
    "features": "*bf16", "windows": "*i32", "out": "*bf16",
    **dict.fromkeys(("width", "features_stride", "windows_stride", "out_stride"), "i32"),
}  # fmt: skip
BUILDS = tuple(
    Build(
        f"windows of {size}",
        "window_mean_kernel",
        _TYPES,
        {"SIZE": size},
        ("window_mean", "default"),
        ["features", "out", "width", "features_stride", "out_stride"],
        quick=size == 4,
    )
    for size in (4, 8, 16)
)


def _moved(inputs: Inputs, outputs: Outputs) -> int:
    """Each token that a window holds is read, as often as windows hold it."""
    held = int((inputs["windows"] >= 0).sum())
    row = inputs["features"].shape[1] * inputs["features"].itemsize
    return int(held * row) + bytes_of(inputs["windows"], *outputs)


WORK = (
    Work(
        "16384 windows of 4, 4096",
        "window_mean",
        _draw(65536, 4096, (16384, 4), _BF16),
        _draw(30, 70, (8, 4), _BF16),
        "copy",
        _moved,
        0.85,
    ),
)
