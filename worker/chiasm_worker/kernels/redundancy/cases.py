"""What the measure of redundancy is held to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from chiasm_worker.kernels.case import Build, Case, Draw, Inputs, Outputs, Tolerance
from chiasm_worker.kernels.codes import encode, form_of
from chiasm_worker.kernels.paged_decode.cases import Layout, draw_cache
from chiasm_worker.kernels.work import Work, bytes_of

_BF16, _FP16, _FP32, _U8, _I8 = (
    torch.bfloat16, torch.float16, torch.float32, torch.uint8, torch.int8,
)  # fmt: skip
_SUMS = Tolerance(
    2e-5, 0.0, "fp32 sums; K's common vector is ten times as long as what differs: 100 x 2^-24"
)


def _likeness(random: Draw, count: int) -> torch.Tensor:
    """Tokens alike and tokens apart: what differs is multiplied by 0, 0.1 or 1."""
    return torch.tensor([0.0, 0.1, 1.0])[random.integer(0, 2)].expand(count, 1, 1)


def _draw(layout: Layout, alike: bool = False) -> Callable[[Draw], Inputs]:
    def draw(random: Draw) -> Inputs:
        cached, lens = draw_cache(random, layout)
        size, shape = layout.block_size, (layout.num_kv_heads, layout.head_dim)
        shared = 10 * random.normal(1, *shape)
        for sequence, length in enumerate(lens.tolist()):
            for index in range(-(-length // size)):
                block, count = (
                    cached["block_table"][sequence, index],
                    min(size, length - index * size),
                )
                own = torch.zeros(1, *shape) if alike else random.normal(1, *shape)
                each = random.normal(count, *shape) * (0 if alike else _likeness(random, count))
                both = torch.stack((shared + own + each, own + each.flip(-1)))
                if form_of(layout.cache) == "float":
                    cached["kv"][block, :, :count] = both.to(layout.cache)
                else:
                    codes, scales = encode(both, layout.cache)
                    cached["kv"][block, :, :count] = codes
                    cached["scales"][block, :, :count] = scales
        return {**cached, "lens": random.memory.holding(lens)}

    return draw


def _case(name: str, layout: Layout, *, alike: bool = False, quick: bool = False) -> Case:
    return Case(
        name,
        "redundancy",
        _draw(layout, alike),
        _SUMS,
        lambda inputs: len(inputs["lens"]),
        _alone,
        quick=quick,
    )


def _alone(inputs: Inputs, row: int) -> tuple[Inputs, Callable[[Outputs], Outputs]]:
    rows = slice(row, row + 1)
    alone: Inputs = {name: inputs[name][rows] for name in ("block_table", "lens")}
    return {**inputs, **alone}, lambda outputs: (outputs[0][rows],)


def _sequences(*lengths: int) -> Sequence[tuple[int, int]]:
    return [(length, 0) for length in lengths]


_SOME = _sequences(70, 1, 0, 17, 90)
CASES = (
    _case("bf16", Layout(_SOME, 4, 2, 32, 16, _BF16), quick=True),
    _case("e4m3", Layout(_sequences(40, 9), 2, 2, 24, 8, _U8), quick=True),
    _case("int8", Layout(_SOME, 2, 1, 64, 16, _I8)),
    _case("fp32, odd blocks", Layout(_SOME, 3, 3, 20, 7, _FP32)),
    _case("fp16 wide heads", Layout(_sequences(130), 1, 1, 256, 64, _FP16)),
    _case("all tokens alike", Layout(_sequences(33, 5), 2, 2, 16, 8, _BF16), alike=True),
    _case("nothing", Layout(_sequences(0, 0), 2, 1, 16, 4, _BF16)),
    _case("beyond 2^31", Layout(_sequences(21, 9), 2, 1, 16, 4, _BF16, far=True)),
)

_STRIDES = (
    "v_offset", "token_stride", "head_stride", "scale_v", "scale_token", "table_stride",
)  # fmt: skip
_TYPES = {
    "scales": "*fp32", "block_table": "*i32", "lens": "*i32", "means": "*fp32",
    "withins": "*fp32", "block_stride": "i64", "scale_block": "i64",
    **dict.fromkeys(_STRIDES, "i32"),
}  # fmt: skip


def _build(name: str, kv: str, row: str, size: int, head_dim: int, quick: bool = False) -> Build:
    return Build(
        name,
        "moments_kernel",
        {**_TYPES, "kv": kv},
        {
            "FORM": {"*u8": 1, "*i8": 2}.get(kv, 0), "BLOCK_SIZE": size, "SIZE": size,
            "HEAD_DIM": head_dim, "DIM": head_dim,
        },
        ("redundancy", row),
        ["kv", "means", "block_stride", "v_offset", "token_stride", "head_stride"],
        quick=quick,
    )  # fmt: skip


BUILDS = (
    _build("bf16, blocks of 16", "*bf16", "default", 16, 128, quick=True),
    _build("bf16, blocks of 64", "*bf16", "wide", 64, 128),
    _build("bf16 wide heads", "*bf16", "wide", 64, 256),
    _build("e4m3, blocks of 64", "*u8", "wide", 64, 128),
    _build("int8, blocks of 64", "*i8", "wide", 64, 128),
    Build(
        "share",
        "share_kernel",
        {**dict.fromkeys(("means", "withins", "out"), "*fp32"), "lens": "*i32",
         "width": "i32", "num_kv_heads": "i32"},
        {"EQUAL_SHARE": 1e-10, "BLOCK_SIZE": 64, "HEAD_DIM": 128, "DIM": 128},
        ("redundancy", "share"),
        ["means"],
    ),
)  # fmt: skip


def _moved(inputs: Inputs, outputs: Outputs) -> int:
    """What lies in the cache, once; what is written is small beside it."""
    _, _, _, num_kv_heads, head_dim = inputs["kv"].shape
    each = head_dim * inputs["kv"].itemsize + (4 if "scales" in inputs else 0)
    seen = int(inputs["lens"].sum() * 2 * num_kv_heads * each)
    return seen + bytes_of(*outputs)


WORK = (
    Work(
        "64 x 4096, 4 heads, bf16",
        "redundancy",
        _draw(Layout(_sequences(*[4096] * 64), 4, 4, 128, 64, _BF16)),
        _draw(Layout(_SOME, 4, 2, 32, 16, _BF16)),
        "copy",
        _moved,
        0.85,
    ),
)
