"""What cross-attention is held to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from chiasm_worker.kernels.case import Build, Case, Draw, Inputs, Limits, Outputs
from chiasm_worker.kernels.cross_attention.plan import Reader, Seen, plan
from chiasm_worker.kernels.cross_attention.shape import plan_shape
from chiasm_worker.kernels.paged_decode.cases import FLOAT_TOLERANCES, Layout, draw_cache
from chiasm_worker.kernels.work import Work, bytes_of

_BF16, _FP32 = torch.bfloat16, torch.float32


@dataclass(frozen=True)
class Heads:
    """Heads and blocks."""

    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 32
    block_size: int = 16
    far: bool = False


def _layout(readers: Sequence[Reader], heads: Heads, dtype: torch.dtype) -> Layout:
    sequences = [(item.num_vectors, 0) for reader in readers for item in reader.items]
    return Layout(
        sequences, heads.num_heads, heads.num_kv_heads, heads.head_dim, heads.block_size, dtype,
        heads.far,
    )  # fmt: skip


def _planned(readers: Sequence[Reader], heads: Heads, dtype: torch.dtype, random: Draw) -> Inputs:
    group = heads.num_heads // heads.num_kv_heads
    shape = plan_shape(dtype, heads.head_dim, group, random.memory.device)
    made = plan(readers, shape)
    held = random.memory.holding
    return {
        "few": held(torch.from_numpy(made.few)),
        "many": held(torch.from_numpy(made.many)),
        "num_parts": held(torch.from_numpy(made.num_parts)),
        "max_parts": made.max_parts,
    }


def _draw(readers: Sequence[Reader], heads: Heads, dtype: torch.dtype) -> Callable[[Draw], Inputs]:
    num_rows = sum(reader.num_rows for reader in readers)

    def draw(random: Draw) -> Inputs:
        cached, _ = draw_cache(random, _layout(readers, heads, dtype))
        q = random.normal(num_rows, heads.num_heads, heads.head_dim).to(dtype)
        return {
            **cached,
            **_planned(readers, heads, dtype, random),
            "q": random.memory.holding(q, hole=heads.head_dim),
            "scale": heads.head_dim**-0.5,
        }

    return draw


def _case(
    name: str, readers: Sequence[Reader], heads: Heads, dtype: torch.dtype, quick: bool = False
) -> Case:
    def alone(inputs: Inputs, index: int) -> tuple[Inputs, Callable[[Outputs], Outputs]]:
        start = sum(reader.num_rows for reader in readers[:index])
        rows = slice(start, start + readers[index].num_rows)
        first = sum(len(reader.items) for reader in readers[:index])
        own = slice(first, first + len(readers[index].items))

        def of_whole(outputs: Outputs) -> Outputs:
            return (outputs[0][rows],)

        group = heads.num_heads // heads.num_kv_heads
        device = inputs["q"].device
        made = plan([readers[index]], plan_shape(dtype, heads.head_dim, group, device))
        mine: Inputs = {
            "q": inputs["q"][rows],
            "block_table": inputs["block_table"][own],
            "few": torch.from_numpy(made.few).to(device),
            "many": torch.from_numpy(made.many).to(device),
            "num_parts": torch.from_numpy(made.num_parts).to(device),
            "max_parts": made.max_parts,
        }
        return {**inputs, **mine}, of_whole

    return Case(
        name,
        "cross_attention",
        _draw(readers, heads, dtype),
        FLOAT_TOLERANCES[dtype],
        lambda inputs: len(readers),
        alone,
        quick=quick,
        interpreter_only=dtype == _FP32,
    )


# Prompts with an item, with two (one padded, seen in part), decoding rows, a row that sees none.
_PROMPT = Reader(0, 30, (Seen(70, 70, 4, 30),))
_TWO = Reader(10, 40, (Seen(33, 20, 0, 1000), Seen(50, 50, 25, 1000)))
_DECODE = Reader(90, 1, (Seen(150, 150, 3, 1000),))
_DECODE_TWO = Reader(40, 1, (Seen(40, 17, 0, 1000), Seen(64, 64, 20, 1000)))
_FEW_ROWS = Reader(10, 7, (Seen(33, 20, 0, 1000),))
# More than one chunk of a GPU.
_LONG = Reader(90, 1, (Seen(1300, 1300, 3, 1000), Seen(70, 70, 5, 1000)))
_ALL = (_PROMPT, _TWO, _DECODE, _DECODE_TWO)
CASES = (
    _case("fp32 prompts and decoding", _ALL, Heads(), _FP32, quick=True),
    _case("bf16 prompts and decoding", _ALL, Heads(), _BF16, quick=True),
    _case("bf16 decoding, odd blocks", (_DECODE, _DECODE_TWO),
          Heads(5, 1, 80, 7), _BF16),
    _case("bf16 more heads to a K and V than few rows", (_DECODE, _FEW_ROWS),
          Heads(20, 1, 32), _BF16, quick=True),
    _case("fp32 wide heads", (_DECODE, _PROMPT), Heads(2, 2, 256, 64), _FP32),
    _case("bf16 many vectors", (_LONG, _DECODE), Heads(2, 1, 16), _BF16),
    _case("beyond 2^31", (_TWO,), replace(Heads(2, 1, 16), far=True), _BF16),
)  # fmt: skip

_STRIDES = (
    "q_row", "q_head", "v_offset", "token_stride", "head_stride", "table_stride", "num_heads",
    "max_parts",
)  # fmt: skip


def _build(name: str, row: str, *, group: int = 4, head_dim: int = 128, block_size: int = 64,
           quick: bool = False, max_issue_ratio: float | None = None) -> Build:  # fmt: skip
    types = {
        **dict.fromkeys(("q", "kv", "out"), "*bf16"), "parts": "*fp32", "part_lse": "*fp32",
        "block_table": "*i32", "entries": "*i32", "scale": "fp32", "block_stride": "i64",
        **dict.fromkeys(_STRIDES, "i32"),
    }  # fmt: skip
    aligned = ["q", "kv", "out", "parts", "block_stride", "q_row", "q_head", "v_offset"]
    return Build(
        name,
        "cross_kernel",
        types,
        {"GROUP": group, "BLOCK_SIZE": block_size, "HEAD_DIM": head_dim, "DIM": head_dim},
        ("cross_attention", row),
        [*aligned, "token_stride", "head_stride"],
        Limits(tensor_core=True, max_issue_ratio=max_issue_ratio, tile_bytes=2 * 64 * 128 * 2),
        quick=quick,
    )


BUILDS = (
    _build("bf16 few", "few", quick=True, max_issue_ratio=0.6),
    _build("bf16 few, blocks of 16", "few", block_size=16, max_issue_ratio=0.6),
    _build("bf16 few wide", "few_wide", head_dim=256),
    _build("bf16 many", "many"),
    _build("bf16 many wide", "many_wide", head_dim=256),
    Build(
        "merge",
        "cross_merge_kernel",
        {
            "parts": "*fp32", "part_lse": "*fp32", "num_parts": "*i32", "out": "*bf16",
            "max_parts": "i32",
        },
        {"HEAD_DIM": 128, "DIM": 128},
        ("cross_attention", "merge"),
        ["parts", "out"],
        # 128 numbers of fp32 on AMD's 64 lanes are two each.
        Limits(load_bits=64),
    ),
)  # fmt: skip

_SERVED = Heads(32, 8, 128, 64)


def _reading(num_rows: int, num_vectors: int) -> Reader:
    """Rows that all see one item."""
    return Reader(10, num_rows, (Seen(num_vectors, num_vectors, 0, 10 + num_rows),))


def _pairs(inputs: Inputs) -> int:
    """Rows times the vectors that each sees."""
    entries = torch.cat((inputs["few"], inputs["many"]))
    return int((entries[:, 2] * (entries[:, 4] - entries[:, 3])).sum())


def _decode_moves(inputs: Inputs, outputs: Outputs) -> int:
    """One row reads each item: its vectors, the queries and the result."""
    _, _, _, num_kv_heads, head_dim = inputs["kv"].shape
    vector = 2 * num_kv_heads * head_dim * inputs["kv"].itemsize
    return int(_pairs(inputs) * vector) + bytes_of(inputs["q"], *outputs)


def _prompt_computes(inputs: Inputs, outputs: Outputs) -> int:
    """Products and sums: two matrices, two operations each."""
    del outputs
    return int(4 * inputs["q"].shape[1] * inputs["q"].shape[2] * _pairs(inputs))


WORK = (
    Work(
        "32 rows, a picture of 6404 vectors each",
        "cross_attention",
        _draw([_reading(1, 6404)] * 32, _SERVED, _BF16),
        _draw([_reading(1, 40)] * 3, Heads(), _BF16),
        "copy",
        _decode_moves,
        0.85,
    ),
    Work(
        "a prompt of 2048, a picture of 6404 vectors",
        "cross_attention",
        _draw([_reading(2048, 6404)], _SERVED, _BF16),
        _draw([_reading(50, 70)], Heads(), _BF16),
        "matmul",
        _prompt_computes,
        0.55,
    ),
)
