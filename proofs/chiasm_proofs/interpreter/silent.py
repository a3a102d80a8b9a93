"""One small kernel for each silent error of Triton 3.9's interpreter, beside what is right.

Each returns (what the interpreter made, what is right); plain, they differ; repaired, they are
equal bit for bit. Run in a process whose Triton interprets.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

Pair = tuple[torch.Tensor, torch.Tensor]
BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn


@triton.jit
def _dot_kernel(a, b, out, SIZE: tl.constexpr):
    r = tl.arange(0, SIZE)
    at = r[:, None] * SIZE + r[None, :]
    tl.store(out + at, tl.dot(tl.load(a + at), tl.load(b + at)))


@triton.jit
def _arithmetic_kernel(a, b, out, SIZE: tl.constexpr, OP: tl.constexpr):
    r = tl.arange(0, SIZE)
    x, y = tl.load(a + r), tl.load(b + r)
    if OP == "add":
        z = x + y
    elif OP == "sub":
        z = x - y
    elif OP == "mul":
        z = x * y
    elif OP == "max":
        z = tl.maximum(x, y)
    elif OP == "neg":
        z = -x
    elif OP == "fma":
        z = tl.fma(x, y, x)
    else:
        z = tl.clamp(x, -1.0, 1.0)
    tl.store(out + r, z)


@triton.jit
def _compare_kernel(a, b, out, SIZE: tl.constexpr):
    r = tl.arange(0, SIZE)
    tl.store(out + r, (tl.load(a + r) < tl.load(b + r)).to(tl.int8))


@triton.jit
def _cast_kernel(a, out, SIZE: tl.constexpr):
    r = tl.arange(0, SIZE)
    tl.store(out + r, tl.load(a + r).to(out.dtype.element_ty))


@triton.jit
def _sum_kernel(a, out, SIZE: tl.constexpr):
    r = tl.arange(0, SIZE)
    tl.store(out + r, tl.sum(tl.load(a + r[:, None] * SIZE + r[None, :]), 1))


def bf16_dot() -> Pair:
    """`tl.dot` multiplies the bit patterns of bf16."""
    a, b = torch.randn(32, 32).to(BF16), torch.randn(32, 32).to(BF16)
    out = torch.empty(32, 32)
    _dot_kernel[(1,)](a, b, out, 32)
    return out, (a.double() @ b.double()).float()


def _arithmetic(op: str, right: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Pair:
    a, b = torch.randn(256).to(BF16), torch.randn(256).to(BF16)
    out = torch.empty(256, dtype=BF16)
    _arithmetic_kernel[(1,)](a, b, out, 256, op)
    return out, right(a, b)


def bf16_sum() -> Pair:
    """Bit patterns are added. Repaired, it is refused; see repair.py."""
    a = torch.randn(16, 16).to(BF16)
    out = torch.empty(16, dtype=BF16)
    _sum_kernel[(1,)](a, out, 16)
    return out, a.float().sum(1).to(BF16)


def bf16_compare() -> Pair:
    """Comparisons order bit patterns: negative numbers are the largest."""
    a, b = torch.randn(256).to(BF16), torch.randn(256).to(BF16)
    out = torch.empty(256, dtype=torch.int8)
    _compare_kernel[(1,)](a, b, out, 256)
    return out, (a < b).to(torch.int8)


def _cast(source: torch.Tensor, dtype: torch.dtype, right: torch.Tensor | None = None) -> Pair:
    out = torch.empty(source.shape, dtype=dtype)
    _cast_kernel[(1,)](source, out, source.numel())
    return out, source.to(dtype) if right is None else right


def float_to_bf16() -> Pair:
    """fp32 is cut off to bf16 instead of rounded: half of all values differ."""
    return _cast(torch.randn(1024), BF16)


def int8_to_bf16() -> Pair:
    """int8 becomes the bit pattern of that number."""
    return _cast(torch.arange(-128, 128).to(torch.int8), BF16)


def float_to_e4m3() -> Pair:
    """The carry of rounding is lost: 7.80 becomes 4."""
    values = torch.cat((torch.tensor([7.80, -7.80, 15.9, 0.99]), torch.randn(1020) * 20))
    return _cast(values, E4M3)


def e4m3_saturates() -> Pair:
    """500 becomes 256 instead of 448, the largest."""
    values = torch.tensor([500.0, -500.0, 449.0, 1e9])
    return _cast(values, E4M3, torch.tensor([448.0, -448.0, 448.0, 448.0]).to(E4M3))


def e4m3_subnormals() -> Pair:
    """What is below 2^-6 becomes 0 or its neighbour."""
    return _cast((torch.arange(512) - 256) * 2.0**-13, E4M3)


def e4m3_nan() -> Pair:
    """NaN becomes a number."""
    out, _ = _cast(torch.tensor([float("nan"), 1.0]), E4M3)
    return out.float().isnan(), torch.tensor([True, False])


def e4m3_codes() -> Pair:
    """The NaN codes are read as 480; all 256 codes at once."""
    codes = torch.arange(256).to(torch.uint8).view(E4M3)
    out, right = _cast(codes, torch.float32)
    return out.nan_to_num(nan=1e6), right.nan_to_num(nan=1e6)


SILENT_ERRORS: dict[str, Callable[[], Pair]] = {
    "bf16 dot": bf16_dot,
    "bf16 add": lambda: _arithmetic("add", torch.add),
    "bf16 sub": lambda: _arithmetic("sub", torch.sub),
    "bf16 mul": lambda: _arithmetic("mul", torch.mul),
    "bf16 max": lambda: _arithmetic("max", torch.maximum),
    "bf16 neg": lambda: _arithmetic("neg", lambda a, _: -a),
    "bf16 fma": lambda: _arithmetic(
        "fma", lambda a, b: (a.double() * b.double() + a.double()).float().to(BF16)
    ),
    "bf16 clamp": lambda: _arithmetic("clamp", lambda a, _: a.clamp(-1, 1)),
    "bf16 compare": bf16_compare,
    "fp32 to bf16": float_to_bf16,
    "int8 to bf16": int8_to_bf16,
    "fp32 to e4m3": float_to_e4m3,
    "e4m3 saturates": e4m3_saturates,
    "fp32 to e4m3 subnormals": e4m3_subnormals,
    "NaN to e4m3": e4m3_nan,
    "e4m3 to fp32": e4m3_codes,
}


def is_right(name: str) -> bool:
    """Whether the interpreter of this process gets it right, bit for bit, or with an error at all.

    An error that is raised is loud; it counts as wrong all the same.
    """
    torch.manual_seed(0)
    try:
        got, right = SILENT_ERRORS[name]()
    except Exception:
        return False
    return torch.equal(got.view(torch.uint8), right.view(torch.uint8))
