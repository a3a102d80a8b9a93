"""What decode attention is held to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from chiasm_worker.kernels.case import (
    Build,
    Case,
    Draw,
    Inputs,
    Limits,
    Outputs,
    Tolerance,
)
from chiasm_worker.kernels.codes import encode, form_of
from chiasm_worker.kernels.work import Work, bytes_of

_BF16, _FP16, _FP32 = torch.bfloat16, torch.float16, torch.float32
FLOAT_TOLERANCES = {
    _FP32: Tolerance(2e-6, 2e-5, "sums in another order and exp2 beside exp, a few units of 2^-24"),
    _FP16: Tolerance(2e-3, 2e-3, "shares rounded to fp16 (2^-11) before the product with V"),
    _BF16: Tolerance(1.2e-2, 1.2e-2, "shares rounded to bf16 (2^-8) before the product with V"),
}
CODED_TOLERANCE = Tolerance(
    8e-3, 8e-3, "q and shares rounded to fp16 (2^-11), the result to q's type (bf16: 2^-8)"
)


@dataclass(frozen=True)
class Layout:
    """A cache and the sequences in it.

    Attributes:
        sequences: (tokens, new ones among them) of each.
        far: blocks lie so far apart that offsets exceed 2^31 elements.
    """

    sequences: Sequence[tuple[int, int]]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    cache: torch.dtype
    far: bool = False


def draw_cache(random: Draw, layout: Layout) -> tuple[Inputs, torch.Tensor]:
    """kv, scales and block_table; blocks in any order, unwritten slots poison.

    Returns: the arguments, and the lengths.
    """
    size, lens = layout.block_size, [length for length, _ in layout.sequences]
    num_used = [-(-length // size) for length in lens]
    num_blocks = sum(num_used) + 2
    shape = (num_blocks, 2, size, layout.num_kv_heads, layout.head_dim)
    if layout.far:
        kv = random.memory.far(shape, layout.cache, (1 << 31) // max(1, num_blocks - 2) + 64)
    else:
        # A record has a header, other layers and a trailer around this layer's K and V.
        kv = random.memory.empty(shape, layout.cache, hole=128)
    scales = None
    if form_of(layout.cache) != "float":
        scales = random.memory.empty(shape[:-1], _FP32, hole=32)
    width = max(num_used, default=0) + 1
    table = random.memory.empty((len(lens), width), torch.int32)
    free = iter(random.permutation(num_blocks))
    if layout.far and num_blocks > 2:
        # The farthest block is used.
        order = [num_blocks - 1, *(i for i in free if i != num_blocks - 1)]
        free = iter(order)
    for i, length in enumerate(lens):
        for j in range(num_used[i]):
            block, count = next(free), min(size, length - j * size)
            table[i, j] = block
            values = random.normal(2, count, layout.num_kv_heads, layout.head_dim, scale=0.7)
            if scales is None:
                kv[block, :, :count] = values.to(layout.cache)
            else:
                # Scales of very different sizes within a sequence.
                values *= 10 ** (3 * random.uniform(2, count, layout.num_kv_heads, 1) - 2)
                values[0] /= values[0].abs().amax(-1, keepdim=True)
                codes, own = encode(values, layout.cache)
                kv[block, :, :count], scales[block, :, :count] = codes, own
    inputs: Inputs = {"kv": kv, "block_table": table}
    if scales is not None:
        inputs["scales"] = scales
    return inputs, torch.tensor(lens, dtype=torch.int32)


def _draw(
    layout: Layout, dtype: torch.dtype, window: int, soft_cap: float
) -> Callable[[Draw], Inputs]:
    def draw(random: Draw) -> Inputs:
        cached, lens = draw_cache(random, layout)
        counts = [0, *(new for _, new in layout.sequences)]
        starts = torch.tensor(counts).cumsum(0).to(torch.int32)
        q = random.normal(int(starts[-1]), layout.num_heads, layout.head_dim)
        return {
            **cached,
            "q": random.memory.holding(q.to(dtype), hole=layout.head_dim),
            "query_starts": random.memory.holding(starts),
            "lens": random.memory.holding(lens),
            "max_queries": max(1, *counts),
            "scale": layout.head_dim**-0.5,
            "window": window,
            "soft_cap": soft_cap,
        }

    return draw


def _alone(inputs: Inputs, row: int) -> tuple[Inputs, Callable[[Outputs], Outputs]]:
    start, end = inputs["query_starts"][row : row + 2].tolist()
    alone: Inputs = {
        "q": inputs["q"][start:end],
        "query_starts": torch.tensor([0, end - start], dtype=torch.int32).to(inputs["q"].device),
        "lens": inputs["lens"][row : row + 1],
        "block_table": inputs["block_table"][row : row + 1],
    }
    return {**inputs, **alone}, lambda outputs: (outputs[0][start:end],)


def _case(
    name: str,
    layout: Layout,
    dtype: torch.dtype,
    *,
    window: int = 0,
    soft_cap: float = 0.0,
    quick: bool = False,
) -> Case:
    return Case(
        name,
        "paged_decode",
        _draw(layout, dtype, window, soft_cap),
        FLOAT_TOLERANCES[dtype] if form_of(layout.cache) == "float" else CODED_TOLERANCE,
        lambda inputs: len(inputs["lens"]),
        _alone,
        quick=quick,
        interpreter_only=dtype == _FP32,
    )


_ONE = ((1, 1), (7, 1), (40, 1), (0, 0), (133, 1))
_MANY = ((9, 8), (1, 1), (70, 3), (33, 8), (0, 0), (129, 2))
_U8, _I8 = torch.uint8, torch.int8
CASES = (
    _case("bf16 grouped", Layout(_ONE, 6, 2, 64, 16, _BF16), _BF16, quick=True),
    _case("e4m3 grouped", Layout(_ONE, 4, 2, 32, 8, _U8), _BF16, quick=True),
    _case(
        "fp32 window, 8 queries", Layout(_MANY, 2, 1, 16, 4, _FP32), _FP32, window=20, quick=True
    ),
    _case("int8, 8 queries", Layout(_MANY, 4, 2, 32, 32, _I8), _FP16, quick=True),
    _case(
        "beyond 2^31", Layout(((21, 1), (9, 1)), 2, 1, 16, 4, _BF16, far=True), _BF16, quick=True
    ),
    _case("fp16, one head each", Layout(_ONE, 3, 3, 80, 8, _FP16), _FP16),
    _case(
        "bf16, 7 heads share, soft cap", Layout(_ONE, 7, 1, 128, 64, _BF16), _BF16, soft_cap=20.0
    ),
    _case("bf16 window, 8 queries", Layout(_MANY, 4, 2, 72, 16, _BF16), _BF16, window=5),
    _case("e4m3 window, 8 queries", Layout(_MANY, 4, 2, 96, 16, _U8), _BF16, window=31),
    _case("e4m3 beside fp32", Layout(_ONE, 4, 2, 32, 8, _U8), _FP32),
    _case("e4m3 soft cap", Layout(_ONE, 2, 2, 64, 32, _U8), _FP16, soft_cap=30.0),
    _case("int8 grouped", Layout(_ONE, 8, 2, 64, 64, _I8), _BF16),
    _case("fp32 cap and window", Layout(_ONE, 4, 2, 8, 3, _FP32), _FP32, window=9, soft_cap=5.0),
    _case("fp32 wide heads", Layout(((50, 1), (3, 2)), 2, 1, 256, 16, _FP32), _FP32),
    # More than one split of a GPU.
    _case("bf16 long", Layout(((1300, 1), (700, 1), (9, 1)), 2, 1, 16, 64, _BF16), _BF16),
    _case("e4m3 long, 3 queries", Layout(((1300, 3), (700, 2)), 2, 1, 16, 64, _U8), _BF16),
    _case("nothing", Layout(((0, 0), (0, 0)), 2, 1, 16, 4, _BF16), _BF16),
)

_STRIDES = (
    "q_token",
    "q_head",
    "v_offset",
    "token_stride",
    "head_stride",
    "scale_v",
    "scale_token",
)
_CACHE_TYPES = {"float16": "*bf16", "float32": "*fp32", "e4m3": "*u8", "int8": "*i8"}
_BYTES = {"float16": 2, "float32": 4, "e4m3": 1, "int8": 1}


def attention_types(form: str) -> dict[str, str]:
    """The arguments that decode and prefill have in common, for a cache of that form."""
    q = "*fp32" if form == "float32" else "*bf16"
    return {
        "q": q, "kv": _CACHE_TYPES[form], "scales": "*fp32", "block_table": "*i32", "out": q,
        "scale": "fp32", "block_stride": "i64", "scale_block": "i64", "table_stride": "i32",
        "num_heads": "i32", **dict.fromkeys(_STRIDES, "i32"),
    }  # fmt: skip


_TYPES = {"query_starts": "*i32", "lens": "*i32", "parts": "*fp32", "part_lse": "*fp32"}


def _build(
    name: str,
    form: str,
    *,
    group: int = 4,
    max_queries: int = 1,
    block_size: int = 64,
    head_dim: int = 128,
    max_issue_ratio: float | None = None,
    quick: bool = False,
    **constants: float,
) -> Build:
    given: dict[str, float] = {
        "FORM": {"e4m3": 1, "int8": 2}.get(form, 0), "WINDOW": 0, "CAP": 0.0,
        "MAX_QUERIES": max_queries, "GROUP": group, "BLOCK_SIZE": block_size,
        "ROWS": max(16, 1 << (max_queries * group - 1).bit_length()),
        "HEAD_DIM": head_dim, "DIM": head_dim,
    }  # fmt: skip
    row = f"{form}{'_wide' if head_dim > 128 else ''}{'_many' if given['ROWS'] > 16 else ''}"
    # K and V of the 64 keys of a tile, 128 wide.
    tile_bytes = 2 * 64 * 128 * _BYTES[form]
    return Build(
        name,
        "decode_kernel",
        {**attention_types(form), **_TYPES},
        {**given, **constants},
        ("paged_decode", row),
        ["q", "kv", "scales", "out", "parts", "block_stride", "q_token", "q_head", "v_offset",
         "token_stride", "head_stride"],
        Limits(
            tensor_core=form != "float32", max_issue_ratio=max_issue_ratio, tile_bytes=tile_bytes
        ),
        quick=quick,
    )  # fmt: skip


BUILDS = (
    _build("bf16", "float16", max_issue_ratio=0.6, quick=True),
    _build("bf16, blocks of 16", "float16", block_size=16, max_issue_ratio=0.6),
    _build("bf16, 7 heads share", "float16", group=7, max_issue_ratio=0.6),
    _build("bf16, 8 queries", "float16", max_queries=8, max_issue_ratio=0.6),
    _build("bf16 window, cap", "float16", max_issue_ratio=0.6, WINDOW=1024, CAP=50.0),
    _build("bf16 wide", "float16", head_dim=256),
    _build("bf16 wide, 8 queries", "float16", head_dim=256, max_queries=8),
    _build("e4m3", "e4m3", max_issue_ratio=0.8, quick=True),
    _build("e4m3, 8 queries", "e4m3", max_queries=8),
    _build("e4m3 wide", "e4m3", head_dim=256),
    _build("e4m3 wide, 8 queries", "e4m3", head_dim=256, max_queries=8),
    _build("int8", "int8", max_issue_ratio=0.8),
    _build("int8, 8 queries", "int8", max_queries=8),
    _build("int8 wide", "int8", head_dim=256),
    _build("int8 wide, 8 queries", "int8", head_dim=256, max_queries=8),
    Build(
        "merge",
        "merge_kernel",
        {
            "query_starts": "*i32", "lens": "*i32", "parts": "*fp32", "part_lse": "*fp32",
            "out": "*bf16", "num_parts": "i32",
        },
        {"WINDOW": 0, "HEAD_DIM": 128, "DIM": 128},
        ("paged_decode", "float16"),
        ["parts", "out"],
    ),
)  # fmt: skip

_SERVED = Layout(((4096, 1),) * 64, 28, 4, 128, 64, _BF16)
_EIGHT_HEADS = Layout(((8192, 1),) * 32, 32, 8, 128, 64, _BF16)
_FEW = Layout(((40, 1),) * 3, 4, 2, 32, 16, _BF16)


def _moved(inputs: Inputs, outputs: Outputs) -> int:
    """What of the cache is seen, the queries and the result."""
    _, _, _, num_kv_heads, head_dim = inputs["kv"].shape
    each = head_dim * inputs["kv"].itemsize + (4 if "scales" in inputs else 0)
    seen = int(inputs["lens"].sum() * 2 * num_kv_heads * each)
    return seen + bytes_of(inputs["q"], *outputs)


def _work(name: str, layout: Layout, small: Layout, goal: float) -> Work:
    draw, draw_small = (_draw(one, _BF16, 0, 0.0) for one in (layout, small))
    return Work(name, "paged_decode", draw, draw_small, "copy", _moved, goal)


WORK = (
    _work("64 x 4096, 28/4 heads, bf16", _SERVED, _FEW, 0.85),
    _work("64 x 4096, 28/4 heads, e4m3", replace(_SERVED, cache=_U8), replace(_FEW, cache=_U8),
          0.75),
    _work("64 x 4096, 28/4 heads, int8", replace(_SERVED, cache=_I8), replace(_FEW, cache=_I8),
          0.75),
    _work("32 x 8192, 32/8 heads, bf16", _EIGHT_HEADS, _FEW, 0.85),
    _work("1 x 32768, 28/4 heads, bf16", replace(_SERVED, sequences=((32768, 1),)), _FEW, 0.85),
    _work("64 x 4096, 8 queries, bf16", replace(_SERVED, sequences=((4096, 8),) * 64),
          replace(_FEW, sequences=((40, 8),) * 3), 0.85),
)  # fmt: skip
