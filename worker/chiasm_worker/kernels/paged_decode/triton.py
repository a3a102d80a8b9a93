"""Split-KV decode attention over blocks, and the merge of the splits; see README.md."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from chiasm_worker.kernels.attention_jit import (
    LOWEST,
    attend_tile,
    empty_state,
    load_queries,
    result_of,
)
from chiasm_worker.kernels.codes import FORM_CODES, cache_row, form_of
from chiasm_worker.kernels.launch import architecture, configuration


@triton.jit
def split_of(length, num_queries, WINDOW, TILE, MIN_CHUNK, MAX_SPLITS):
    """(first key, keys of each split, number of splits) of one sequence.

    Of its own length alone, so that its sums have the same order in every batch.
    """
    first = 0
    if WINDOW > 0:
        first = tl.maximum(length - num_queries - WINDOW + 1, 0) // TILE * TILE
    visible = length - first
    chunk = tl.maximum(tl.cdiv(visible, MAX_SPLITS), MIN_CHUNK)
    chunk = tl.cdiv(chunk, TILE) * TILE
    return first, chunk, tl.cdiv(visible, chunk)


@triton.jit
def decode_kernel(
    q,
    kv,
    scales,
    block_table,
    query_starts,
    lens,
    out,
    parts,
    part_lse,
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
    WINDOW: tl.constexpr,
    CAP: tl.constexpr,
    MAX_QUERIES: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    TILE: tl.constexpr,
    MIN_CHUNK: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    STAGES: tl.constexpr,
):
    split = tl.program_id(0)
    kv_head = tl.program_id(1)
    sequence = tl.program_id(2)
    first_query = tl.load(query_starts + sequence)
    num_queries = tl.load(query_starts + sequence + 1) - first_query
    length = tl.load(lens + sequence)
    first, chunk, num_splits = split_of(length, num_queries, WINDOW, TILE, MIN_CHUNK, MAX_SPLITS)
    if (num_queries == 0) | (split >= num_splits):
        return
    row = tl.arange(0, ROWS)
    dim = tl.arange(0, DIM)
    token = (first_query + row // GROUP).to(tl.int64)
    head = kv_head * GROUP + row % GROUP
    is_row = row < num_queries * GROUP
    inside = is_row[:, None] & (dim < HEAD_DIM)[None, :]
    queries, row_factor = load_queries(
        q, token, head, q_token, q_head, inside, scale, FORM, NATIVE, ROWS, DIM
    )
    row_high = length - num_queries + row // GROUP
    row_low = row_high - WINDOW + 1 if WINDOW > 0 else row_high * 0
    pointers = (
        kv + kv_head.to(tl.int64) * head_stride,
        scales + kv_head,
        block_table + sequence.to(tl.int64) * table_stride,
    )
    strides = (block_stride, v_offset, token_stride, scale_block, scale_v, scale_token)
    state = empty_state(ROWS, DIM)
    start = first + split * chunk
    end = tl.minimum(start + chunk, length)
    whole = start + (end - start) // TILE * TILE
    for tile in tl.range(start, whole, TILE, num_stages=STAGES):
        tile = tl.multiple_of(tile, TILE)
        state = attend_tile(
            state, queries, row_factor, row_low, row_high, pointers, tile, length, strides,
            False, WINDOW > 0 or MAX_QUERIES > 1, FORM, NATIVE, CAP, BLOCK_SIZE, TILE, HEAD_DIM,
            DIM,
        )  # fmt: skip
    if whole < end:
        state = attend_tile(
            state, queries, row_factor, row_low, row_high, pointers, whole, length, strides,
            True, True, FORM, NATIVE, CAP, BLOCK_SIZE, TILE, HEAD_DIM, DIM,
        )  # fmt: skip
    result, lse = result_of(state, FORM, NATIVE)
    place = token * num_heads + head
    if num_splits == 1:
        to = out + place[:, None] * HEAD_DIM + dim[None, :]
        tl.store(to, result.to(out.dtype.element_ty), mask=inside)
    else:
        part = place * tl.num_programs(0) + split
        tl.store(parts + part[:, None] * HEAD_DIM + dim[None, :], result, mask=inside)
        tl.store(part_lse + part, lse, mask=is_row)


@triton.jit
def merge_kernel(
    query_starts,
    lens,
    parts,
    part_lse,
    out,
    num_parts,
    WINDOW: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    TILE: tl.constexpr,
    MIN_CHUNK: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
):
    query = tl.program_id(0)
    head = tl.program_id(1)
    sequence = tl.program_id(2)
    first_query = tl.load(query_starts + sequence)
    num_queries = tl.load(query_starts + sequence + 1) - first_query
    _, _, num_splits = split_of(
        tl.load(lens + sequence), num_queries, WINDOW, TILE, MIN_CHUNK, MAX_SPLITS
    )
    if (query >= num_queries) | (num_splits <= 1):
        return
    place = (first_query + query).to(tl.int64) * tl.num_programs(1) + head
    split = tl.arange(0, MAX_SPLITS)
    dim = tl.arange(0, DIM)
    part = place * num_parts + split
    is_split = split < num_splits
    lse = tl.load(part_lse + part, mask=is_split, other=LOWEST)
    weight = tl.where(is_split, tl.exp2(lse - tl.max(lse, 0)), 0.0)
    inside = is_split[:, None] & (dim < HEAD_DIM)[None, :]
    values = tl.load(parts + part[:, None] * HEAD_DIM + dim[None, :], mask=inside, other=0.0)
    merged = tl.sum(values * weight[:, None], 0) / tl.sum(weight, 0)
    to = out + place * HEAD_DIM + dim
    tl.store(to, merged.to(out.dtype.element_ty), mask=dim < HEAD_DIM)


def paged_decode(
    q: torch.Tensor,
    kv: torch.Tensor,
    block_table: torch.Tensor,
    query_starts: torch.Tensor,
    lens: torch.Tensor,
    *,
    max_queries: int,
    scale: float,
    scales: torch.Tensor | None = None,
    window: int = 0,
    soft_cap: float = 0.0,
) -> torch.Tensor:
    """Attention of the last tokens of each sequence; see reference.py."""
    num_tokens, num_heads, head_dim = q.shape
    _, _, block_size, num_kv_heads, _ = kv.shape
    group = num_heads // num_kv_heads
    form = form_of(kv.dtype)
    rows = max(16, triton.next_power_of_2(max_queries * group))
    config = configuration(
        "paged_decode", variant(kv.dtype, head_dim, rows), architecture(q.device)
    )
    out = torch.empty((num_tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    num_sequences = len(lens)
    if not num_tokens:
        return out
    longest = -(-block_table.shape[1] * block_size // config["MIN_CHUNK"])
    num_parts = max(1, min(config["MAX_SPLITS"], longest))
    parts = torch.empty(
        (num_tokens, num_heads, num_parts, head_dim), dtype=torch.float32, device=q.device
    )
    part_lse = torch.empty((num_tokens, num_heads, num_parts), dtype=torch.float32, device=q.device)
    dim = max(16, triton.next_power_of_2(head_dim))
    shape = {"WINDOW": window, "HEAD_DIM": head_dim, "DIM": dim}
    split = {name: config[name] for name in ("TILE", "MIN_CHUNK", "MAX_SPLITS")}
    given = lens if scales is None else scales
    scale_strides = (0, 0, 0) if scales is None else scales.stride()[:3]
    decode_kernel[(num_parts, num_kv_heads, num_sequences)](
        q, kv, given, block_table, query_starts, lens, out, parts, part_lse,
        scale, q.stride(0), q.stride(1), *kv.stride()[:4], *scale_strides,
        block_table.stride(0), num_heads,
        FORM=FORM_CODES[form], CAP=soft_cap, MAX_QUERIES=max_queries, GROUP=group,
        ROWS=rows, BLOCK_SIZE=block_size,
        **shape, **config,
    )  # fmt: skip
    if num_parts > 1:
        merge_kernel[(max_queries, num_heads, num_sequences)](
            query_starts, lens, parts, part_lse, out, num_parts, **shape, **split, num_warps=4
        )
    return out


def variant(dtype: torch.dtype, head_dim: int, rows: int) -> str:
    """The launch table's row."""
    few = cache_row(dtype, head_dim)
    return f"{few}_many" if rows > 16 and dtype != torch.float32 else few
