"""Numbers of 8 bits in the cache, turned into fp16 for the tensor cores; functions for kernels.

    e4m3   a byte s eeee mmm (no infinities, S.1111.111 is NaN): up to 448, subnormals from 2^-9
    int8   -127..127

fp16 holds every one of them exactly, so that products of fp16 lose nothing, and a GPU needs no slow
conversion to bf16 (one F2F each on Hopper). Where there is no native conversion the bits are moved:
with e4m3's exponent and fraction at the place of fp16's the number is 2^-8 of itself, for
subnormals too. Whoever uses it multiplies by `E4M3_UNIT`.

A NaN code would become 480 by moving bits: who writes the cache writes none.
"""

from __future__ import annotations

import triton
import triton.language as tl

FLOAT = tl.constexpr(0)
E4M3 = tl.constexpr(1)
INT8 = tl.constexpr(2)


@triton.jit
def as_number(codes, FORM: tl.constexpr, NATIVE: tl.constexpr):
    """fp16 numbers of codes, in units of `unit`; what is no code stays as it is."""
    if FORM == E4M3:
        if NATIVE:
            return codes.to(tl.float8e4nv, bitcast=True).to(tl.float16)
        wide = codes.to(tl.uint16)
        return (((wide & 0x80) << 8) | ((wide & 0x7F) << 7)).to(tl.float16, bitcast=True)
    elif FORM == INT8:
        # 0x6400 is 1024 in fp16, whose last bit counts ones: 1024 + (code + 128), exactly.
        wide = codes.to(tl.uint8, bitcast=True).to(tl.uint16)
        return ((wide ^ 0x80) | 0x6400).to(tl.float16, bitcast=True) - 1152.0
    else:
        return codes


@triton.jit
def unit(FORM: tl.constexpr, NATIVE: tl.constexpr):
    """What a number of `as_number` counts."""
    if FORM == E4M3 and not NATIVE:
        return 256.0
    return 1.0


@triton.jit
def as_e4m3(values):
    """e4m3 codes of fp32 values, rounded to nearest even, at most 448; NaN becomes 0.

    By moving bits, so that all machines write the same.
    """
    magnitude = tl.minimum(tl.abs(values), 448.0)
    bits = magnitude.to(tl.int32, bitcast=True)
    # 20 of fp32's 23 bits go; its exponent counts from -127, e4m3's from -7.
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
    # Below 2^-6 codes count 2^-9: the sum with 2^23 has them in its last bits, rounded.
    shifted = magnitude * 512.0 + 8388608.0
    small = shifted.to(tl.int32, bitcast=True) & 0xF
    code = tl.where(magnitude < 0.015625, small, normal)
    sign = (values.to(tl.int32, bitcast=True) >> 24) & 0x80
    return tl.where(values == values, code | sign, 0).to(tl.uint8)


@triton.jit
def as_int8(values):
    """int8 codes of fp32 values, rounded to nearest even, within -127..127; NaN becomes 0."""
    clamped = tl.minimum(tl.maximum(values, -127.0), 127.0)
    # 1.5 x 2^23: its last bit counts ones.
    rounded = (clamped + 12582912.0) - 12582912.0
    return tl.where(values == values, rounded, 0.0).to(tl.int8)
