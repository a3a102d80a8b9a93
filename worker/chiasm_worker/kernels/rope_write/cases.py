"""What the rotation and the write are held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from chiasm_worker.kernels.case import Build, Case, Draw, Inputs, Outputs, Tolerance
from chiasm_worker.kernels.codes import form_of
from chiasm_worker.kernels.rope_write.shape import half_of, variant
from chiasm_worker.kernels.work import Work, bytes_of

_BF16, _FP16, _FP32 = torch.bfloat16, torch.float16, torch.float32
_U8, _I8 = torch.uint8, torch.int8
_ROUNDED = {
    _FP32: Tolerance(1e-6, 1e-5, "a fused product and sum, and sums of squares in another order"),
    _FP16: Tolerance(2e-3, 2e-3, "roundings to fp16 (2^-11) may fall to the other side"),
    _BF16: Tolerance(1.6e-2, 1.6e-2, "roundings to bf16 (2^-8) may fall to the other side"),
}
_CODES = Tolerance(1.0, 0.0, "the neighbouring code, where a rounding of q's type fell otherwise")
_SCALES = Tolerance(1e-12, 1e-2, "a share of the largest value, which is rounded to bf16 (2^-8)")


@dataclass(frozen=True)
class Shape:
    """Heads, the cache's type and blocks."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    cache: torch.dtype
    far: bool = False


def _pool(random: Draw, shape: Shape, num_tokens: int) -> Inputs:
    num_blocks = num_tokens // shape.block_size + 3
    size = (num_blocks, 2, shape.block_size, shape.num_kv_heads, shape.head_dim)
    if shape.far:
        kv = random.memory.far(size, shape.cache, (1 << 31) // (num_blocks - 1) + 64)
    else:
        kv = random.memory.empty(size, shape.cache, hole=64)
    slots = torch.tensor(random.permutation(num_blocks * shape.block_size)[:num_tokens])
    if num_tokens > 2:
        # One token has no slot, one has the last.
        slots[1] = -1
        last = num_blocks * shape.block_size - 1
        slots[0 if last not in slots else int((slots == last).nonzero()[0])] = last
    inputs: Inputs = {"slots": random.memory.holding(slots.long()), "kv": kv}
    if form_of(shape.cache) != "float":
        inputs["scales"] = random.memory.empty(size[:-1], _FP32, hole=8)
    return inputs


def _draw_write(shape: Shape, num_tokens: int, dtype: torch.dtype) -> Callable[[Draw], Inputs]:
    def draw(random: Draw) -> Inputs:
        new = random.normal(num_tokens, 2, shape.num_kv_heads, shape.head_dim)
        # Vectors of very different sizes, one of zeros, one with a NaN.
        new *= 10 ** (8 * random.uniform(num_tokens, 2, 1, 1) - 4)
        if num_tokens > 3:
            new[2, 0, 0], new[3, 1, 0, 1] = 0.0, float("nan")
        held = random.memory.holding(new.to(dtype), hole=shape.head_dim)
        return {**_pool(random, shape, num_tokens), "new": held}

    return draw


def _draw_rope(
    shape: Shape, num_tokens: int, dtype: torch.dtype, normed: bool, offset: bool
) -> Callable[[Draw], Inputs]:
    def draw(random: Draw) -> Inputs:
        held = random.memory.holding
        heads = shape.num_heads + 2 * shape.num_kv_heads
        # Three axes of positions, of which each frequency follows one: M-RoPE.
        position = 1000 * random.uniform(num_tokens, 3)
        half = shape.head_dim // 2
        axis = torch.arange(half) % 3
        angle = position[:, axis] * 10000.0 ** (-torch.arange(half) / half)
        cos, sin = angle.cos(), angle.sin()
        inputs = {
            **_pool(random, shape, num_tokens),
            "qkv": held(random.normal(num_tokens, heads, shape.head_dim).to(dtype), 16),
            "cos": held(torch.cat((cos, cos), 1).to(dtype)),
            "sin": held(torch.cat((-sin, sin), 1).to(dtype)),
        }
        if normed:
            weights = [held(random.normal(shape.head_dim).to(dtype)) for _ in "qk"]
            inputs |= {"norms": tuple(weights), "eps": 1e-6, "offset": offset}
        return inputs

    return draw


def _written(inputs: Inputs, outputs: Outputs, row: int) -> Outputs:
    """What lies in the slot of a row, of kv and scales, the last of the outputs."""
    slot = int(inputs["slots"][row])
    if slot < 0:
        return ()
    size = inputs["kv"].shape[2]
    pools = outputs[-2:] if "scales" in inputs else outputs[-1:]
    return tuple(pool[slot // size, :, slot % size] for pool in pools)


def _alone(inputs: Inputs, row: int) -> tuple[Inputs, Callable[[Outputs], Outputs]]:
    rows = slice(row, row + 1)
    names = ("slots", "new", "qkv", "cos", "sin")
    alone: Inputs = {name: inputs[name][rows] for name in names if name in inputs}

    def of_whole(outputs: Outputs) -> Outputs:
        queries = (outputs[0][rows],) if "qkv" in inputs else ()
        return (*queries, *_written(inputs, outputs, row))

    return {**inputs, **alone}, of_whole


def _of_alone(inputs: Inputs, outputs: Outputs) -> Outputs:
    queries = outputs[:1] if "qkv" in inputs else ()
    return (*queries, *_written(inputs, outputs, 0))


def _case(
    name: str,
    shape: Shape,
    num_tokens: int,
    dtype: torch.dtype,
    *,
    rope: bool = True,
    normed: bool = False,
    offset: bool = False,
    quick: bool = False,
) -> Case:
    form = form_of(shape.cache)
    own = (_ROUNDED[dtype],) if form == "float" else (_CODES, _SCALES)
    draw = _draw_write(shape, num_tokens, dtype)
    if rope:
        draw = _draw_rope(shape, num_tokens, dtype, normed, offset)
    return Case(
        name,
        "rope_write" if rope else "kv_write",
        draw,
        (_ROUNDED[dtype], *own) if rope else own,
        lambda inputs: len(inputs["slots"]),
        _alone,
        _of_alone,
        writes_partly=True,
        quick=quick,
    )


CASES = (
    _case("write bf16", Shape(0, 2, 32, 8, _BF16), 11, _BF16, rope=False, quick=True),
    _case("write e4m3", Shape(0, 3, 24, 4, _U8), 9, _FP32, rope=False, quick=True),
    _case("write int8", Shape(0, 5, 16, 4, _I8), 9, _BF16, rope=False, quick=True),
    _case("write fp32 beyond 2^31", Shape(0, 1, 16, 4, _FP32, far=True), 6, _FP32, rope=False,
          quick=True),
    _case("rope bf16, norm", Shape(6, 2, 64, 16, _BF16), 7, _BF16, normed=True, quick=True),
    _case("rope e4m3", Shape(7, 1, 80, 16, _U8), 5, _BF16, quick=True),
    _case("rope fp32, Gemma's norm", Shape(4, 4, 12, 3, _FP32), 6, _FP32, normed=True, offset=True),
    _case("rope int8, norm", Shape(9, 3, 32, 4, _I8), 4, _FP16, normed=True),
    _case("rope bf16 96, norm", Shape(12, 4, 96, 4, _BF16), 5, _BF16, normed=True),
    _case("rope e4m3 256, Gemma's norm", Shape(8, 4, 256, 4, _U8), 5, _BF16, normed=True,
          offset=True),
    _case("rope fp16, one token", Shape(1, 1, 2, 1, _FP16), 1, _FP16),
    _case("nothing", Shape(2, 1, 16, 4, _FP32), 0, _FP32),
)  # fmt: skip

_POINTERS = ("q", "k", "v", "cos", "sin", "q_weight", "k_weight", "out")
_STRIDES = (
    "q_token", "k_token", "v_token", "q_head", "k_head", "cos_stride", "v_offset", "token_stride",
    "head_stride", "scale_v", "scale_token", "num_heads", "num_kv_heads",
)  # fmt: skip


def _build(
    name: str,
    form: str,
    *,
    rotated: bool = True,
    normed: bool = False,
    offset: bool = False,
    head_dim: int = 128,
    quick: bool = False,
) -> Build:
    cache = {"float": "*bf16", "e4m3": "*u8", "int8": "*i8"}[form]
    types = {
        **dict.fromkeys(_POINTERS, "*bf16"), **dict.fromkeys(_STRIDES, "i32"), "kv": cache,
        "scales": "*fp32", "slots": "*i64", "eps": "fp32", "block_stride": "i64",
        "scale_block": "i64",
    }  # fmt: skip
    unaligned = ("scale_v", "scale_token", "scale_block", "eps", "num_heads", "num_kv_heads")
    return Build(
        name,
        "rope_write_kernel",
        types,
        {
            "ROTATED": rotated, "NORMED": normed, "OFFSET": offset,
            "FORM": {"float": 0, "e4m3": 1, "int8": 2}[form],
            "CODE_MAX": 448.0 if form == "e4m3" else 127.0, "BLOCK_SIZE": 64,
            "HEAD_DIM": head_dim, "HALF": half_of(head_dim),
        },
        ("rope_write", variant(head_dim)),
        [n for n in types if n not in unaligned],
        quick=quick,
    )  # fmt: skip


BUILDS = (
    _build("bf16, norm", "float", normed=True, quick=True),
    _build("e4m3", "e4m3", quick=True),
    _build("bf16", "float"),
    _build("int8", "int8"),
    _build("e4m3, norm", "e4m3", normed=True),
    _build("int8, norm", "int8", normed=True),
    # The sizes of heads that models have: plain, with norms, with Gemma's norms.
    *(
        _build(
            f"{form} {size}{kind}", form, head_dim=size, normed=bool(kind), offset="Gemma" in kind
        )
        for form in ("float", "e4m3", "int8")
        for size, kind in (
            (64, ""),
            (64, ", norm"),
            (80, ""),
            (96, ""),
            (96, ", norm"),
            (256, ""),
            (256, ", norm"),
            (256, ", Gemma's norm"),
            (128, ", Gemma's norm"),
        )
    ),
    _build("write bf16", "float", rotated=False),
    _build("write e4m3", "e4m3", rotated=False),
)

_SERVED, _FEW = Shape(28, 4, 128, 64, _BF16), Shape(4, 2, 32, 16, _BF16)


def _moved(inputs: Inputs, outputs: Outputs) -> int:
    """qkv, cosines and sines are read; q and as many numbers of the pools written as there are."""
    _, _, _, num_kv_heads, head_dim = inputs["kv"].shape
    written = inputs["kv"].itemsize * head_dim + (4 if "scales" in inputs else 0)
    pools = int(len(inputs["slots"]) * 2 * num_kv_heads * written)
    return pools + bytes_of(inputs["qkv"], inputs["cos"], inputs["sin"], outputs[0])


WORK = tuple(
    Work(
        f"32768 tokens, 28/4 heads, norm, {form_of(cache)}",
        "rope_write",
        _draw_rope(replace(_SERVED, cache=cache), 32768, _BF16, normed=True, offset=False),
        _draw_rope(replace(_FEW, cache=cache), 9, _BF16, normed=True, offset=False),
        "copy",
        _moved,
        0.85,
    )
    for cache in (_BF16, _U8)
)
