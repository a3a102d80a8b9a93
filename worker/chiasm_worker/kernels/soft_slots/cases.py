"""What pooling into slots is held to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from chiasm_worker.kernels.case import Build, Case, Draw, Inputs, Limits, Outputs
from chiasm_worker.kernels.paged_decode.cases import FLOAT_TOLERANCES
from chiasm_worker.kernels.work import Work, moved

_BF16, _FP16, _FP32 = torch.bfloat16, torch.float16, torch.float32
# Some, one, none, more than a chunk, a whole number of chunks.
_PICTURES = (37, 1, 0, 150, 64)


def _draw(
    num_slots: int,
    num_heads: int,
    head_dim: int,
    counts: Sequence[int],
    dtype: torch.dtype,
    far: bool = False,
) -> Callable[[Draw], Inputs]:
    def draw(random: Draw) -> Inputs:
        held, hole = random.memory.holding, random.integer(0, 3) * 8
        slots = random.normal(num_slots, num_heads, head_dim).to(dtype)
        kv = random.normal(sum(counts), 2, num_heads, head_dim, scale=0.7).to(dtype)
        starts = torch.tensor([0, *counts]).cumsum(0).to(torch.int32)
        return {
            "slots": held(slots, hole),
            "kv": _far(random, kv) if far else held(kv, hole),
            "starts": held(starts),
            "max_tokens": max(counts, default=0),
            "scale": head_dim**-0.5,
        }

    return draw


def _far(random: Draw, kv: torch.Tensor) -> torch.Tensor:
    """Tokens so far apart that offsets exceed 2^31 elements."""
    tokens = random.memory.far(kv.shape, kv.dtype, (1 << 31) // (len(kv) - 1) + 64)
    return tokens.copy_(kv)


def _case(
    num_slots: int,
    num_heads: int,
    head_dim: int,
    counts: Sequence[int],
    dtype: torch.dtype,
    *,
    far: bool = False,
    quick: bool = False,
) -> Case:
    where = ", beyond 2^31" if far else ""
    size = f"{num_slots} slots, {num_heads}x{head_dim} {str(dtype)[6:]}"
    return Case(
        f"{len(counts)} pictures, {size}{where}",
        "soft_slots",
        _draw(num_slots, num_heads, head_dim, counts, dtype, far),
        FLOAT_TOLERANCES[dtype],
        lambda inputs: len(inputs["starts"]) - 1,
        _alone,
        quick=quick,
        interpreter_only=dtype == _FP32,
    )


def _alone(inputs: Inputs, row: int) -> tuple[Inputs, Callable[[Outputs], Outputs]]:
    start, end = inputs["starts"][row : row + 2].tolist()
    alone: Inputs = {
        "kv": inputs["kv"][start:end],
        "starts": torch.tensor([0, end - start], dtype=torch.int32).to(inputs["kv"].device),
        "max_tokens": end - start,
    }
    return {**inputs, **alone}, lambda out: (out[0][row : row + 1],)


CASES = (
    _case(5, 2, 24, _PICTURES, _BF16, quick=True),
    _case(32, 2, 64, (70, 9), _FP32, quick=True),
    _case(16, 3, 80, _PICTURES, _FP16),
    _case(64, 1, 128, (129, 16), _BF16),
    _case(1, 2, 16, (3,), _FP32),
    # More than one chunk of a GPU.
    _case(7, 1, 16, (1300, 512), _BF16),
    _case(4, 1, 16, (21,), _BF16, far=True, quick=True),
    _case(4, 2, 16, (), _BF16),
    _case(4, 2, 16, (0, 0), _BF16),
)

_STRIDES = ("slot_stride", "slot_head", "token_stride", "v_offset", "head_stride")
_TYPES = {
    **dict.fromkeys(("slots", "kv"), "*bf16"), **dict.fromkeys(("parts", "part_lse"), "*fp32"),
    "starts": "*i32", "scale": "fp32", **dict.fromkeys(_STRIDES, "i32"), "num_slots": "i32",
}  # fmt: skip


def _build(row: str, num_slots: int, head_dim: int, quick: bool = False) -> Build:
    return Build(
        f"{num_slots} slots, heads of {head_dim}",
        "soft_slots_kernel",
        _TYPES,
        {"ROWS": max(16, num_slots), "HEAD_DIM": head_dim, "DIM": 1 << (head_dim - 1).bit_length()},
        ("soft_slots", row),
        ["slots", "kv", "parts", *_STRIDES],
        Limits(
            tensor_core=True,
            max_issue_ratio=0.6,
            tile_bytes=2 * 64 * head_dim * 2,
        ),
        quick=quick,
    )


BUILDS = (
    _build("few", 16, 128, quick=True),
    _build("few", 16, 64),
    _build("few", 16, 96),
    _build("many", 32, 128),
    _build("many", 64, 128),
    _build("many", 64, 96),
    Build(
        "merge",
        "slots_merge_kernel",
        {
            "parts": "*fp32", "part_lse": "*fp32", "starts": "*i32", "out": "*bf16",
            "num_slots": "i32", "max_parts": "i32",
        },
        {"HEAD_DIM": 128, "DIM": 128, "CHUNK": 512},
        ("soft_slots", "merge"),
        ["parts", "out"],
        # 128 numbers of fp32 on AMD's 64 lanes are two each.
        Limits(load_bits=64),
    ),
)  # fmt: skip

WORK = (
    Work(
        "64 pictures of 2304, 32 slots, 16x64",
        "soft_slots",
        _draw(32, 16, 64, (2304,) * 64, _BF16),
        _draw(5, 2, 24, (37,) * 3, _BF16),
        "copy",
        moved("kv", "slots"),
        0.75,
    ),
)
