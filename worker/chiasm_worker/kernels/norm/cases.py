"""What the norms are held to."""

from __future__ import annotations

from collections.abc import Callable

import torch

from chiasm_worker.kernels.case import Build, Case, Draw, Inputs, Outputs, Tolerance
from chiasm_worker.kernels.work import Work, bytes_of, moved

_ROUNDING = {
    torch.float32: Tolerance(
        2e-6, 1e-5, "fp32 sums over a row in another order; 2^-24 times the root of its size"
    ),
    torch.bfloat16: Tolerance(
        1e-3, 1.6e-2, "two roundings to bf16 (2^-8 each) may fall to the other side"
    ),
    torch.float16: Tolerance(1e-4, 2e-3, "two roundings to fp16 (2^-11 each), as above"),
}


def _draw(
    num_rows: int, size: int, dtype: torch.dtype, residual: bool, form: str
) -> Callable[[Draw], Inputs]:
    def draw(random: Draw) -> Inputs:
        hole = random.integer(0, 7)
        held = random.memory.holding
        inputs: Inputs = {
            "x": held(random.normal(num_rows, size).to(dtype), hole),
            "weight": held(random.normal(size).to(dtype)),
            "eps": 1e-6,
        }
        if residual:
            inputs["residual"] = held(random.normal(num_rows, size, scale=3).to(dtype), hole + 1)
        if form == "layer":
            inputs["bias"] = held(random.normal(size).to(dtype))
        elif form == "offset":
            inputs["offset"] = True
        return inputs

    return draw


def _alone(inputs: Inputs, row: int) -> tuple[Inputs, Callable[[Outputs], Outputs]]:
    rows = slice(row, row + 1)
    alone: Inputs = {n: inputs[n][rows] for n in ("x", "residual") if n in inputs}
    return {**inputs, **alone}, lambda outputs: tuple(o[rows] for o in outputs)


def _case(
    form: str, dtype: torch.dtype, num_rows: int, size: int, residual: bool, quick: bool = False
) -> Case:
    name = f"{form} {num_rows}x{size} {str(dtype)[6:]}{' residual' if residual else ''}"
    return Case(
        name,
        "layer_norm" if form == "layer" else "rms_norm",
        _draw(num_rows, size, dtype, residual, form),
        _ROUNDING[dtype],
        lambda inputs: len(inputs["x"]),
        _alone,
        quick=quick,
    )


_BF16, _FP16, _FP32 = torch.bfloat16, torch.float16, torch.float32
CASES = (
    _case("rms", _BF16, 5, 96, True, quick=True),
    _case("offset", _FP16, 3, 77, False, quick=True),
    _case("layer", _FP32, 4, 130, True, quick=True),
    _case("rms", _BF16, 0, 64, False, quick=True),
    _case("rms", _BF16, 1, 1, True),
    _case("rms", _FP32, 17, 1000, True),
    _case("rms", _FP16, 7, 4097, False),
    _case("offset", _BF16, 9, 2304, True),
    _case("offset", _FP32, 2, 8193, False),
    _case("layer", _BF16, 6, 1152, False),
    _case("layer", _FP16, 3, 3, True),
    _case("rms", _BF16, 37, 128, False),
    _case("offset", _FP16, 19, 256, True),
    _case("layer", _FP32, 10, 250, True),
)

_TYPES = {
    **dict.fromkeys(("x", "residual", "weight", "bias", "out", "summed"), "*bf16"),
    **dict.fromkeys(("x_stride", "residual_stride", "out_stride", "summed_stride", "size"), "i32"),
    "num_rows": "i32",
    "eps": "fp32",
}


def _build(form: str, width: int, variant: str, residual: bool, quick: bool = False) -> Build:
    return Build(
        f"{form} {width}{' residual' if residual else ''}",
        "norm_kernel",
        _TYPES,
        {
            "HAS_RESIDUAL": residual,
            "CENTRED": form == "layer",
            "OFFSET": form == "offset",
            "WIDTH": width,
        },
        ("norm", variant),
        [n for n in _TYPES if n not in ("eps", "num_rows")],
        quick=quick,
    )


BUILDS = (
    _build("rms", 4096, "w8192", residual=True, quick=True),
    _build("rms", 2048, "w2048", residual=True),
    _build("rms", 16384, "w32768", residual=True),
    _build("rms", 4096, "w8192", residual=False),
    _build("offset", 4096, "w8192", residual=False),
    _build("offset", 4096, "w8192", residual=True),
    _build("offset", 2048, "w2048", residual=True),
    _build("layer", 2048, "w2048", residual=True),
    # Heads, which cross-attention layers normalise.
    *(_build("rms", width, "w256", residual=False, quick=width == 128) for width in (64, 128, 256)),
)

WORK = (
    Work(
        "rms 16384x4096 residual",
        "rms_norm",
        _draw(16384, 4096, _BF16, True, "rms"),
        _draw(5, 96, _BF16, True, "rms"),
        "copy",
        moved("x", "residual"),
        0.85,
    ),
    Work(
        "layer 65536x1152",
        "layer_norm",
        _draw(65536, 1152, _BF16, False, "layer"),
        _draw(5, 96, _BF16, False, "layer"),
        "copy",
        # Without a residual the sum is x itself.
        lambda inputs, outputs: bytes_of(inputs["x"], outputs[0]),
        0.85,
    ),
)
