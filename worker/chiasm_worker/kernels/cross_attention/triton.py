"""Cross-attention over the blocks of media items; see README.md."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from chiasm_worker.kernels.attention_jit import (
    attend_tile,
    empty_state,
    load_queries,
    merge_parts,
    result_of,
)
from chiasm_worker.kernels.cross_attention.shape import variant
from chiasm_worker.kernels.launch import architecture, configuration


@triton.jit
def cross_kernel(
    q,
    kv,
    block_table,
    entries,
    out,
    parts,
    part_lse,
    scale,
    q_row,
    q_head,
    block_stride,
    v_offset,
    token_stride,
    head_stride,
    table_stride,
    num_heads,
    max_parts,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    TILE: tl.constexpr,
    STAGES: tl.constexpr,
):
    kv_head = tl.program_id(0)
    mine = entries + tl.program_id(1) * 6
    source = tl.load(mine).to(tl.int64)
    first_row, num_rows = tl.load(mine + 1), tl.load(mine + 2)
    start, end, part = tl.load(mine + 3), tl.load(mine + 4), tl.load(mine + 5)
    lane = tl.arange(0, ROWS)
    dim = tl.arange(0, DIM)
    is_row = lane < num_rows * GROUP
    row = (first_row + lane // GROUP).to(tl.int64)
    head = kv_head * GROUP + lane % GROUP
    inside = is_row[:, None] & (dim < HEAD_DIM)[None, :]
    queries, row_factor = load_queries(
        q, row, head, q_row, q_head, inside, scale, 0, False, ROWS, DIM
    )
    low = tl.zeros([ROWS], tl.int32)
    high = low + end - 1
    # There are no scales; their place is never read.
    pointers = (kv + kv_head.to(tl.int64) * head_stride, kv, block_table + source * table_stride)
    strides = (block_stride, v_offset, token_stride, 0, 0, 0)
    state = empty_state(ROWS, DIM)
    whole = start + (end - start) // TILE * TILE
    for tile in tl.range(start, whole, TILE, num_stages=STAGES):
        tile = tl.multiple_of(tile, TILE)
        state = attend_tile(
            state, queries, row_factor, low, high, pointers, tile, end, strides,
            False, False, 0, False, 0.0, BLOCK_SIZE, TILE, HEAD_DIM, DIM,
        )  # fmt: skip
    if whole < end:
        state = attend_tile(
            state, queries, row_factor, low, high, pointers, whole, end, strides,
            True, True, 0, False, 0.0, BLOCK_SIZE, TILE, HEAD_DIM, DIM,
        )  # fmt: skip
    result, lse = result_of(state, 0, False)
    place = row * num_heads + head
    if part < 0:
        to = out + place[:, None] * HEAD_DIM + dim[None, :]
        tl.store(to, result.to(out.dtype.element_ty), mask=inside)
    else:
        at = place * max_parts + part
        tl.store(parts + at[:, None] * HEAD_DIM + dim[None, :], result, mask=inside)
        tl.store(part_lse + at, lse, mask=is_row)


@triton.jit
def cross_merge_kernel(
    parts,
    part_lse,
    num_parts,
    out,
    max_parts,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    place = row * tl.num_programs(1) + tl.program_id(1)
    count = tl.load(num_parts + row)
    if count <= 1:
        return
    pooled = merge_parts(parts, part_lse, place * max_parts, count, HEAD_DIM, DIM)
    dim = tl.arange(0, DIM)
    to = out + place * HEAD_DIM + dim
    tl.store(to, pooled.to(out.dtype.element_ty), mask=dim < HEAD_DIM)


def cross_attention(
    q: torch.Tensor,
    kv: torch.Tensor,
    block_table: torch.Tensor,
    few: torch.Tensor,
    many: torch.Tensor,
    num_parts: torch.Tensor,
    *,
    max_parts: int,
    scale: float,
) -> torch.Tensor:
    """Attention of rows to the vectors that a plan gives each; see reference.py."""
    num_rows, num_heads, head_dim = q.shape
    num_kv_heads = kv.shape[3]
    out = torch.empty((num_rows, num_heads, head_dim), dtype=q.dtype, device=q.device)
    if not num_rows:
        return out
    shape = (num_rows, num_heads, max_parts, head_dim)
    parts = torch.empty(shape, dtype=torch.float32, device=q.device)
    part_lse = torch.empty(shape[:-1], dtype=torch.float32, device=q.device)
    sizes = {"HEAD_DIM": head_dim, "DIM": max(16, triton.next_power_of_2(head_dim))}
    for kind, entries in (("few", few), ("many", many)):
        if not len(entries):
            continue
        name = variant(kind, q.dtype, head_dim)
        config = dict(configuration("cross_attention", name, architecture(q.device)))
        config.pop("CHUNK")
        cross_kernel[(num_kv_heads, len(entries))](
            q, kv, block_table, entries, out, parts, part_lse, scale, q.stride(0), q.stride(1),
            *kv.stride()[:4], block_table.stride(0), num_heads, max_parts,
            GROUP=num_heads // num_kv_heads, BLOCK_SIZE=kv.shape[2], **sizes, **config,
        )  # fmt: skip
    if max_parts > 1:
        merge = configuration("cross_attention", "merge", architecture(q.device))
        cross_merge_kernel[(num_rows, num_heads)](
            parts, part_lse, num_parts, out, max_parts, **sizes, **merge
        )
    return out
