"""Prefill attention over blocks, a tile of queries per program; see README.md."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from chiasm_worker.kernels.attention_jit import (
    attend_tile,
    empty_state,
    load_queries,
    result_of,
)
from chiasm_worker.kernels.codes import FORM_CODES, cache_row, form_of
from chiasm_worker.kernels.launch import architecture, configuration
from chiasm_worker.kernels.paged_prefill.shape import tile_shape


@triton.jit
def prefill_kernel(
    q,
    kv,
    scales,
    block_table,
    tiles,
    row_low,
    row_high,
    out,
    scale,
    q_token,
    q_head,
    block_stride,
    v_offset,
    token_stride,
    head_stride,
    scale_block,
    scale_v,
    scale_token,
    table_stride,
    num_heads,
    FORM: tl.constexpr,
    NATIVE: tl.constexpr,
    CAP: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    TILE: tl.constexpr,
    STAGES: tl.constexpr,
):
    kv_head = tl.program_id(0)
    mine = tiles + tl.program_id(1) * 8
    sequence = tl.load(mine).to(tl.int64)
    first_row, num_rows = tl.load(mine + 1), tl.load(mine + 2)
    first, full_first = tl.load(mine + 3), tl.load(mine + 4)
    full_end, end, length = tl.load(mine + 5), tl.load(mine + 6), tl.load(mine + 7)
    # Rows are queries times the heads that share K and V.
    row = tl.arange(0, ROWS)
    dim = tl.arange(0, DIM)
    is_row = row < num_rows * GROUP
    token = (first_row + row // GROUP).to(tl.int64)
    head = kv_head * GROUP + row % GROUP
    inside = is_row[:, None] & (dim < HEAD_DIM)[None, :]
    queries, row_factor = load_queries(
        q, token, head, q_token, q_head, inside, scale, FORM, NATIVE, ROWS, DIM
    )
    low = tl.load(row_low + token, mask=is_row, other=0)
    high = tl.load(row_high + token, mask=is_row, other=-1)
    pointers = (
        kv + kv_head.to(tl.int64) * head_stride,
        scales + kv_head,
        block_table + sequence * table_stride,
    )
    strides = (block_stride, v_offset, token_stride, scale_block, scale_v, scale_token)
    state = empty_state(ROWS, DIM)
    for start in tl.range(full_first, full_end, TILE, num_stages=STAGES):
        start = tl.multiple_of(start, TILE)
        state = attend_tile(
            state, queries, row_factor, low, high, pointers, start, length, strides,
            False, False, FORM, NATIVE, CAP, BLOCK_SIZE, TILE, HEAD_DIM, DIM,
        )  # fmt: skip
    # The borders of what is seen, on both sides of the full tiles.
    num_before = (full_first - first) // TILE
    num_border = num_before + tl.cdiv(tl.maximum(end - full_end, 0), TILE)
    for i in tl.range(0, num_border, num_stages=1):
        start = tl.where(i < num_before, first + i * TILE, full_end + (i - num_before) * TILE)
        start = tl.multiple_of(start, TILE)
        state = attend_tile(
            state, queries, row_factor, low, high, pointers, start, length, strides,
            True, True, FORM, NATIVE, CAP, BLOCK_SIZE, TILE, HEAD_DIM, DIM,
        )  # fmt: skip
    result, _ = result_of(state, FORM, NATIVE)
    place = token * num_heads + head
    to = out + place[:, None] * HEAD_DIM + dim[None, :]
    tl.store(to, result.to(out.dtype.element_ty), mask=inside)


def paged_prefill(
    q: torch.Tensor,
    kv: torch.Tensor,
    block_table: torch.Tensor,
    tiles: torch.Tensor,
    row_low: torch.Tensor,
    row_high: torch.Tensor,
    *,
    shape: tuple[int, int],
    scale: float,
    scales: torch.Tensor | None = None,
    soft_cap: float = 0.0,
) -> torch.Tensor:
    """Attention of many new tokens; see reference.py."""
    num_tokens, num_heads, head_dim = q.shape
    _, _, block_size, num_kv_heads, _ = kv.shape
    group = num_heads // num_kv_heads
    expected = tile_shape(kv.dtype, head_dim, group, q.device)
    if shape != expected:
        raise ValueError(f"The plan is for tiles of {shape}; this launch has {expected}.")
    config = configuration("paged_prefill", cache_row(kv.dtype, head_dim), architecture(q.device))
    out = torch.empty((num_tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    if len(tiles):
        scale_strides = (0, 0, 0) if scales is None else scales.stride()[:3]
        prefill_kernel[(num_kv_heads, len(tiles))](
            q, kv, q if scales is None else scales, block_table, tiles, row_low, row_high, out,
            scale, q.stride(0), q.stride(1), *kv.stride()[:4], *scale_strides,
            block_table.stride(0), num_heads,
            FORM=FORM_CODES[form_of(kv.dtype)], CAP=soft_cap, GROUP=group,
            BLOCK_SIZE=block_size, HEAD_DIM=head_dim,
            DIM=max(16, triton.next_power_of_2(head_dim)), **config,
        )  # fmt: skip
    return out
