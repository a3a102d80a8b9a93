"""How K and V may lie in the cache, as torch sees them; the truth beside codes_jit.py.

A quantised K or V vector of one token and head is `code * scale`, with one fp32 scale of its own.

Must not know: Triton, blocks.
"""

from __future__ import annotations

import torch

E4M3_MAX = 448.0
INT8_MAX = 127.0
# A scale is never below, so that a vector of zeros divides by something.
SMALLEST_SCALE = 1e-12

FORMS = {torch.uint8: "e4m3", torch.int8: "int8"}
# What codes_jit.py calls them.
FORM_CODES = {"float": 0, "e4m3": 1, "int8": 2}


def form_of(dtype: torch.dtype) -> str:
    """The form of a cache of that type: float, e4m3 (uint8) or int8."""
    return FORMS.get(dtype, "float")


def cache_row(dtype: torch.dtype, head_dim: int) -> str:
    """The launch table's row for attention to a cache of that type."""
    form = form_of(dtype)
    if dtype == torch.float32:
        return "float32"
    name = "float16" if form == "float" else form
    return f"{name}_wide" if head_dim > 128 else name


def decode(codes: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
    """fp32 numbers of codes [..., head_dim] with scales [...]; floats as they are."""
    if scales is None:
        return codes.float()
    numbers = codes.view(torch.float8_e4m3fn) if codes.dtype == torch.uint8 else codes
    return numbers.float() * scales[..., None]


def encode(values: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and fp32 scales of values [..., head_dim]: the largest of a vector gets the last code.

    Rounded to nearest even. A vector that holds a NaN gets codes of some kind and NaN as its scale,
    so that it stays one: in e4m3 a NaN code would be read as 480 where bits are moved.
    """
    largest = E4M3_MAX if dtype == torch.uint8 else INT8_MAX
    wide = values.float()
    scales = (wide.abs().amax(-1) / largest).clamp(min=SMALLEST_SCALE)
    scaled = (wide / scales[..., None]).nan_to_num(nan=0.0).clamp(-largest, largest)
    if dtype == torch.uint8:
        return scaled.to(torch.float8_e4m3fn).view(torch.uint8), scales
    return scaled.round().to(torch.int8), scales
