"""What products with packed weights are held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from chiasm_worker.kernels.case import Build, Case, Draw, Inputs, Limits, Outputs, Tolerance
from chiasm_worker.kernels.quantised_linear.packed import PackedWeight, pack
from chiasm_worker.kernels.work import Ceiling, Work, bytes_of

# Terms are up to some 1000 where scales differ and an input stands out, and their sum in fp32 is
# off by some 2^-24 of that for each; results are of the size of 1 to 1000. With a wrong scale or
# zero a result is off by its own size.
_SUMS = 1e-3
_ROUNDING = {
    torch.float32: Tolerance(_SUMS, 1e-5, "fp32 sums in another order"),
    torch.bfloat16: Tolerance(_SUMS, 8e-3, "one rounding to bf16 (2^-8) to the other side"),
    torch.float16: Tolerance(_SUMS, 1e-3, "one rounding to fp16 (2^-11, or 2^-10) as above"),
}


@dataclass(frozen=True)
class Shape:
    """A product to draw.

    Attributes:
        wild: scales of groups differ a hundredfold, and an input is thirty times the others.
        far: rows and tiles of weights lie further apart than int32 counts.
    """

    num_rows: int
    num_outputs: int
    size: int
    bits: int
    group: int
    zeros: bool = False
    bias: bool = False
    wild: bool = False
    far: bool = False


def _draw(shape: Shape, dtype: torch.dtype) -> Callable[[Draw], Inputs]:
    def draw(random: Draw) -> Inputs:
        x = random.normal(shape.num_rows, shape.size)
        if shape.wild:
            x[:, random.integer(0, shape.size - 1)] *= 30
        inputs: Inputs = {"x": _rows(random, x.to(dtype), shape.far)}
        inputs["weight"] = _weight(random, shape)
        if shape.bias:
            inputs["bias"] = random.memory.holding(random.normal(shape.num_outputs).to(dtype))
        return inputs

    return draw


def _rows(random: Draw, x: torch.Tensor, far: bool) -> torch.Tensor:
    if not far:
        return random.memory.holding(x, hole=random.integer(0, 9))
    rows = random.memory.far(x.shape, x.dtype, 2**31 // max(1, len(x) - 1) + 16)
    return rows.copy_(x)


def _weight(random: Draw, shape: Shape) -> PackedWeight:
    half = 1 << (shape.bits - 1)
    span = (random.uniform(shape.num_outputs, shape.size) * 2 * half).floor() - half
    groups = (shape.num_outputs, shape.size // shape.group if shape.group else 1)
    scales = (random.uniform(*groups) + 0.5) / (8 * half)
    if shape.wild:
        scales *= 10.0 ** (2 * random.uniform(*groups))
    zeros = (random.uniform(*groups) * 2 * half).floor() - half
    made = pack(
        span.to(torch.int8),
        scales.bfloat16(),
        zeros.to(torch.int8) if shape.zeros else None,
        shape.bits,
        shape.group,
    )
    held = random.memory.holding
    words = held(made.words)
    if shape.far:
        words = random.memory.far(made.words.shape, torch.int32, 2**31 // (len(words) - 1) + 16)
        words.copy_(made.words)
    return replace(made, words=words, scales=held(made.scales))


def _alone(inputs: Inputs, row: int) -> tuple[Inputs, Callable[[Outputs], Outputs]]:
    rows = slice(row, row + 1)
    return {**inputs, "x": inputs["x"][rows]}, lambda outputs: (outputs[0][rows],)


def _case(name: str, dtype: torch.dtype, shape: Shape, quick: bool = False) -> Case:
    return Case(
        name,
        "quantised_linear",
        _draw(shape, dtype),
        _ROUNDING[dtype],
        lambda inputs: len(inputs["x"]),
        _alone,
        quick=quick,
        interpreter_only=dtype == torch.float32,
    )


_BF16, _FP16, _FP32 = torch.bfloat16, torch.float16, torch.float32
# Above 16 rows the tiles are others; a row alone is computed with those of few rows.
CASES = (
    _case("int4 bf16, groups of 128", _BF16, Shape(17, 33, 384, 4, 128, wild=True), quick=True),
    _case("int4 fp16, zeros, groups of 32", _FP16, Shape(3, 70, 160, 4, 32, zeros=True, bias=True),
          quick=True),
    _case("int8 bf16, zeros, one scale", _BF16, Shape(70, 65, 200, 8, 0, zeros=True), quick=True),
    _case("int8 fp32, groups of 64", _FP32, Shape(1, 5, 320, 8, 64, zeros=True, bias=True),
          quick=True),
    _case("int4 bf16, no rows", _BF16, Shape(0, 33, 128, 4, 128), quick=True),
    _case("int4 bf16, zeros, many", _BF16, Shape(70, 129, 512, 4, 128, zeros=True, wild=True)),
    _case("int4 bf16, groups of 64", _BF16, Shape(33, 17, 448, 4, 64, bias=True, wild=True)),
    _case("int4 bf16, one scale", _BF16, Shape(16, 48, 72, 4, 0, bias=True)),
    _case("int4 bf16, one input", _BF16, Shape(2, 1, 1, 4, 0)),
    _case("int4 fp16, groups of 128", _FP16, Shape(1, 100, 256, 4, 128, wild=True)),
    _case("int4 fp32, groups of 32", _FP32, Shape(18, 40, 96, 4, 32, zeros=True, wild=True)),
    _case("int8 bf16, groups of 32", _BF16, Shape(20, 31, 288, 8, 32, zeros=True, wild=True)),
    _case("int8 fp16, groups of 128", _FP16, Shape(17, 66, 256, 8, 128, zeros=True, bias=True)),
    _case("int8 fp16, one scale", _FP16, Shape(5, 64, 129, 8, 0, zeros=True)),
    _case("int4 bf16, beyond 2^31", _BF16, Shape(3, 20, 300, 4, 0, far=True)),
)  # fmt: skip

_OUTPUTS = 128  # of one program, on all targets


def _build(
    name: str,
    bits: int,
    variant: str,
    *,
    dtype: str = "bf16",
    group: int = 128,
    zeros: bool = False,
    whole: bool = True,
    max_issue_ratio: float | None = None,
    quick: bool = False,
) -> Build:
    types = {
        **dict.fromkeys(("x", "bias", "out"), f"*{dtype}"),
        "words": "*i32",
        "scales": "*fp32",
        **dict.fromkeys(("num_rows", "num_outputs", "size", "x_stride", "tile_stride"), "i32"),
    }
    return Build(
        name,
        "quantised_linear_kernel",
        types,
        {"BITS": bits, "GROUP": group, "HAS_ZEROS": zeros, "HAS_BIAS": True, "WHOLE": whole},
        ("quantised_linear", f"int{bits}_{variant}"),
        [n for n in types if n != "num_rows"],
        Limits(
            tensor_core=True,
            max_issue_ratio=max_issue_ratio,
            # Of weights; scales and inputs, which stay in L2, are not counted.
            tile_bytes=_OUTPUTS * 128 * bits // 8 if variant == "few" else 0,
        ),
        quick=quick,
    )


# Ratios without a limit are what README.md says of them.
BUILDS = (
    _build("int4", 4, "few", max_issue_ratio=0.8, quick=True),
    _build("int4, fp16", 4, "few", dtype="fp16", max_issue_ratio=0.8),
    _build("int4, one scale", 4, "few", group=0, max_issue_ratio=0.8),
    _build("int4, inputs no multiple of 128", 4, "few", whole=False, max_issue_ratio=0.8),
    _build("int4, zeros", 4, "few", zeros=True),
    _build("int4, groups of 64", 4, "few", group=64),
    _build("int4, groups of 32", 4, "few", group=32),
    _build("int4, many rows", 4, "many"),
    _build("int4, many rows, zeros", 4, "many", zeros=True),
    _build("int4, many rows, groups of 32", 4, "many", group=32),
    _build("int4, many rows, one scale", 4, "many", group=0),
    _build("int8", 8, "few", max_issue_ratio=0.8),
    _build("int8, fp16, zeros", 8, "few", dtype="fp16", zeros=True, max_issue_ratio=0.8),
    _build("int8, zeros", 8, "few", zeros=True, max_issue_ratio=0.8),
    _build("int8, one scale", 8, "few", group=0, max_issue_ratio=0.8),
    _build("int8, groups of 32", 8, "few", group=32, max_issue_ratio=0.8),
    _build("int8, many rows", 8, "many"),
    _build("int8, many rows, one scale", 8, "many", group=0),
    _build("int8, many rows, groups of 32, zeros", 8, "many", group=32, zeros=True),
)


def _moved(inputs: Inputs, outputs: Outputs) -> int:
    return bytes_of(inputs["x"], *outputs) + int(inputs["weight"].num_bytes)


def _multiplied(inputs: Inputs, outputs: Outputs) -> int:
    return 2 * outputs[0].numel() * int(inputs["weight"].size)


def _work(name: str, shape: Shape, ceiling: Ceiling, goal: float) -> Work:
    small = replace(shape, num_rows=min(shape.num_rows, 20), num_outputs=40, size=256)
    amount = _moved if ceiling == "copy" else _multiplied
    return Work(
        name, "quantised_linear", _draw(shape, _BF16), _draw(small, _BF16), ceiling, amount, goal
    )


# More than an L2 holds for few rows; 4096 outputs fill a part of a GPU, which is what it costs.
WORK = (
    _work("int4, 1 row, 65536x4096", Shape(1, 65536, 4096, 4, 128), "copy", 0.75),
    _work("int4 zeros, 16 rows, 65536x4096", Shape(16, 65536, 4096, 4, 128, True), "copy", 0.65),
    _work("int8, 1 row, 65536x4096", Shape(1, 65536, 4096, 8, 128), "copy", 0.85),
    _work("int4, 1 row, 4096x4096", Shape(1, 4096, 4096, 4, 128), "copy", 0.2),
    _work("int4, 4096 rows, 16384x4096", Shape(4096, 16384, 4096, 4, 128), "matmul", 0.45),
)
