"""Products with weights of 4 or 8 bits, a tile of outputs and rows per program; see README.md."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from chiasm_worker.kernels.launch import architecture, configuration
from chiasm_worker.kernels.quantised_linear.packed import PackedWeight

# Rows up to which the tile of few rows is used: what one of its programs takes.
FEW = 16


@triton.jit
def _halves(words, TYPE: tl.constexpr):
    """[..., 2] numbers of 16 bits whose bits are an int32's low and high half: no bit moves."""
    halves = tl.join(words.to(tl.int16), (words >> 16).to(tl.int16))
    return halves.to(TYPE, bitcast=True)


@triton.jit
def _codes(words, BITS: tl.constexpr, TYPE: tl.constexpr):
    """[..., 2] numbers, exactly, of int32 that have a code in the lowest bits of each half.

    0x6400 is 1024 in fp16 and 0x4300 is 128 in bf16, whose last bits count ones: with a code there
    the number is that much more than the code. No integer is converted, which would be slow.
    """
    if TYPE.is_fp16():
        if BITS == 4:
            return _halves((words & 0x000F000F) ^ 0x64086408, TYPE) - 1032.0
        else:
            return _halves((words & 0x00FF00FF) ^ 0x64806480, TYPE) - 1152.0
    elif TYPE.is_bf16():
        if BITS == 4:
            return _halves((words & 0x000F000F) ^ 0x43084308, TYPE) - 136.0
        else:
            # Seven bits fit behind 128; the sign makes 256 of it, which is what is then too much.
            above = _halves((words & 0x007F007F) | 0x43004300, TYPE)
            return above - _halves((words & 0x00800080) | 0x43004300, TYPE)
    else:
        halves = tl.join(words << (32 - BITS), words << (16 - BITS))
        return (halves >> (32 - BITS)).to(TYPE)


@triton.jit
def _quarter(planes, zero, QUARTER: tl.constexpr, BITS: tl.constexpr, TYPE: tl.constexpr):
    """[outputs, 16, 2] numbers of a quarter; `planes`: one tile of words, or two."""
    PIECES: tl.constexpr = 16 // BITS
    words = planes[QUARTER // PIECES] >> (QUARTER % PIECES * BITS)
    numbers = _codes(words, BITS, TYPE)
    return numbers if zero is None else numbers - zero


@triton.jit
def _part(
    planes,
    zero,
    PART: tl.constexpr,
    PARTS: tl.constexpr,
    BITS: tl.constexpr,
    TYPE: tl.constexpr,
):
    """[outputs, 128 / PARTS] numbers of one part of a tile: its quarters side by side."""
    OUTPUTS: tl.constexpr = planes[0].shape[0]
    q0 = _quarter(planes, zero, PART * 4 // PARTS, BITS, TYPE)
    if PARTS == 4:
        return tl.reshape(q0, [OUTPUTS, 32])
    elif PARTS == 2:
        q1 = _quarter(planes, zero, PART * 2 + 1, BITS, TYPE)
        return tl.reshape(tl.permute(tl.join(q0, q1), (0, 3, 1, 2)), [OUTPUTS, 64])
    else:
        q1 = _quarter(planes, zero, 1, BITS, TYPE)
        q2 = _quarter(planes, zero, 2, BITS, TYPE)
        q3 = _quarter(planes, zero, 3, BITS, TYPE)
        four = tl.join(tl.join(q0, q2), tl.join(q1, q3))
        return tl.reshape(tl.permute(four, (0, 3, 4, 1, 2)), [OUTPUTS, 128])


@triton.jit
def _factors(scales, HAS_ZEROS: tl.constexpr, BITS: tl.constexpr, TYPE: tl.constexpr):
    """fp32 scales [outputs, 1], and numbers of zero points [outputs, 1, 1] where there are any."""
    if HAS_ZEROS:
        bits = scales.to(tl.int32, bitcast=True)
        zero, _ = tl.split(_codes(bits, BITS, TYPE))
        return (bits & -256).to(tl.float32, bitcast=True)[:, None], zero[:, None, None]
    else:
        return scales[:, None], None


@triton.jit
def quantised_linear_kernel(
    x,
    words,
    scales,
    bias,
    out,
    num_rows,
    num_outputs,
    size,
    x_stride,
    tile_stride,
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    HAS_ZEROS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    STAGES: tl.constexpr,
):
    TYPE: tl.constexpr = x.dtype.element_ty
    # Parts of a tile that have a scale of their own.
    PARTS: tl.constexpr = 128 // min(GROUP, 128) if GROUP else 1
    DEPTH: tl.constexpr = 128 // PARTS
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    depth = tl.arange(0, DEPTH)
    is_row, is_output = row < num_rows, output < num_outputs
    # Those past the end read what others read, so that weights need no mask.
    safe = tl.where(is_output, output, 0)
    x_at = x + row[None, :].to(tl.int64) * x_stride + depth[:, None]
    words_at = words + safe[:, None].to(tl.int64) * 16 + tl.arange(0, 16)[None, :]
    plane = tl.cast(num_outputs, tl.int64) * 16
    if GROUP == 0:
        scale, zero = _factors(tl.load(scales + safe), HAS_ZEROS, BITS, TYPE)
    total = tl.zeros([OUTPUTS, ROWS], tl.float32)
    for tile in tl.range(0, tl.cdiv(size, 128), num_stages=STAGES):
        at = words_at + tl.cast(tile, tl.int64) * tile_stride
        planes = (tl.load(at),) if BITS == 4 else (tl.load(at), tl.load(at + plane))
        for part in tl.static_range(PARTS):
            first = tile * 128 + part * DEPTH
            mask = is_row[None, :] if WHOLE else is_row[None, :] & (first + depth < size)[:, None]
            inputs = tl.load(x_at + first, mask=mask, other=0.0)
            if GROUP == 0:
                total = tl.dot(_part(planes, zero, part, PARTS, BITS, TYPE), inputs, total)
            else:
                group = scales + tl.cast(first // GROUP, tl.int64) * num_outputs
                scale, zero = _factors(tl.load(group + safe), HAS_ZEROS, BITS, TYPE)
                total += tl.dot(_part(planes, zero, part, PARTS, BITS, TYPE), inputs) * scale
    if GROUP == 0:
        total *= scale
    if HAS_BIAS:
        total += tl.load(bias + safe).to(tl.float32)[:, None]
    to = out + row[None, :].to(tl.int64) * num_outputs + output[:, None]
    tl.store(to, total.to(TYPE), mask=is_row[None, :] & is_output[:, None])


def quantised_linear(
    x: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """The product [num_rows, num_outputs]; see reference.py.

    Raises: ValueError for x that is not [num_rows, size] with whole rows.
    """
    num_rows, size = x.shape
    if size != weight.size or x.stride(1) != 1:
        raise ValueError(
            f"x is {tuple(x.shape)} with strides {x.stride()}; the weight takes rows of "
            f"{weight.size} without holes in them."
        )
    out = torch.empty((num_rows, weight.num_outputs), dtype=x.dtype, device=x.device)
    if num_rows:
        config = configuration(
            "quantised_linear", variant(weight.bits, num_rows, x.dtype), architecture(x.device)
        )
        grid = (
            triton.cdiv(weight.num_outputs, config["OUTPUTS"]),
            triton.cdiv(num_rows, config["ROWS"]),
        )
        quantised_linear_kernel[grid](
            x, weight.words, weight.scales, x if bias is None else bias, out,
            num_rows, weight.num_outputs, size, x.stride(0), weight.words.stride(0),
            BITS=weight.bits, GROUP=weight.group, HAS_ZEROS=weight.has_zeros,
            HAS_BIAS=bias is not None, WHOLE=size % 128 == 0, **config,
        )  # fmt: skip
    return out


def variant(bits: int, num_rows: int, dtype: torch.dtype) -> str:
    """The launch table's row."""
    if dtype == torch.float32:
        return "float32"
    return f"int{bits}_{'few' if num_rows <= FEW else 'many'}"
