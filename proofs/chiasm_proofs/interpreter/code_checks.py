"""The numbers of a quantised cache, all of them: read both ways, written by moving bits.

Must not know: attention. Runs only in a process whose Triton interprets.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from chiasm_worker.kernels.codes import decode, encode
from chiasm_worker.kernels.codes_jit import as_e4m3, as_int8, as_number, unit


@triton.jit
def _read_kernel(codes, out, SIZE: tl.constexpr, FORM: tl.constexpr, NATIVE: tl.constexpr):
    r = tl.arange(0, SIZE)
    number = as_number(tl.load(codes + r), FORM, NATIVE)
    tl.store(out + r, number.to(tl.float32) * unit(FORM, NATIVE))


@triton.jit
def _write_kernel(values, out, SIZE: tl.constexpr, IS_E4M3: tl.constexpr):
    r = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(values + r)
    tl.store(out + r, as_e4m3(x) if IS_E4M3 else as_int8(x))


def _read(codes: torch.Tensor, form: int, native: bool) -> torch.Tensor:
    out = torch.empty(256)
    _read_kernel[(1,)](codes, out, 256, form, native)
    return out


def _written(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    out = torch.empty(values.shape, dtype=dtype)
    _write_kernel[(len(values) // 1024,)](values, out, 1024, dtype == torch.uint8)
    return out


def faults(seed: int) -> list[str]:
    """What is wrong with reading any code or writing many values; nothing where all is right."""
    torch.manual_seed(seed)
    return [*_reading(), *_writing(), *_both()]


def _finite() -> tuple[torch.Tensor, torch.Tensor]:
    """All 256 bytes, and which of them are numbers in e4m3."""
    codes = torch.arange(256).to(torch.uint8)
    return codes, (codes & 0x7F) != 0x7F


def _reading() -> Iterator[str]:
    codes, finite = _finite()
    right = decode(codes, torch.ones(()))
    for native in (True, False):
        if not torch.equal(_read(codes, 1, native)[finite], right[finite]):
            yield f"e4m3 codes are read wrongly, native={native}"
    int8 = torch.arange(-128, 128).to(torch.int8)
    if not torch.equal(_read(int8, 2, False), decode(int8, torch.ones(()))):
        yield "int8 codes are read wrongly"


def _writing() -> Iterator[str]:
    codes, finite = _finite()
    # Every finite code's number and the middles between, where rounding to even decides.
    numbers = decode(codes, torch.ones(()))[finite].sort().values
    ties = (numbers[1:] + numbers[:-1]) / 2
    spread = torch.randn(16 * 1024) * torch.logspace(-4, 3, 16).repeat_interleave(1024)
    values = torch.cat((numbers, ties, spread))
    values = values[: len(values) // 1024 * 1024].contiguous()
    wanted = values.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    if not torch.equal(_written(values, torch.uint8), wanted):
        yield "values become other e4m3 codes than torch's"
    halves = (torch.arange(-1024, 1024) / 4).contiguous()
    rounded = halves.clamp(-127, 127).round().to(torch.int8)
    if not torch.equal(_written(halves, torch.int8), rounded):
        yield "values become other int8 codes than torch's"
    unsound = torch.full((1024,), float("nan"))
    for dtype in (torch.uint8, torch.int8):
        if _written(unsound, dtype).any():
            yield f"NaN becomes a code of {dtype}"


def _both() -> Iterator[str]:
    vectors = torch.randn(64, 32)
    for dtype, half_step in ((torch.uint8, 2.0**-4), (torch.int8, 1 / 254)):
        error = (decode(*encode(vectors, dtype)) - vectors).abs().amax(1)
        if (error > 1.001 * half_step * vectors.abs().amax(1)).any():
            yield f"{dtype} loses more than half a step"
