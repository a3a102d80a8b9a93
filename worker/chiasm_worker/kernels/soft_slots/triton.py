"""Pooling into learned slots, chunks of a picture side by side; see README.md."""

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
from chiasm_worker.kernels.launch import architecture, configuration

MAX_SLOTS = 64
MAX_HEAD_DIM = 128


@triton.jit
def soft_slots_kernel(
    slots,
    kv,
    starts,
    parts,
    part_lse,
    scale,
    slot_stride,
    slot_head,
    token_stride,
    v_offset,
    head_stride,
    num_slots,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    CHUNK: tl.constexpr,
    TILE: tl.constexpr,
    STAGES: tl.constexpr,
):
    head, item, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first = tl.load(starts + item).to(tl.int64)
    num_tokens = (tl.load(starts + item + 1) - first).to(tl.int32)
    start = part * CHUNK
    if start >= num_tokens:
        return
    end = tl.minimum(start + CHUNK, num_tokens)
    slot = tl.arange(0, ROWS)
    dim = tl.arange(0, DIM)
    is_slot = slot < num_slots
    inside = is_slot[:, None] & (dim < HEAD_DIM)[None, :]
    own = slot.to(tl.int64)
    queries, row_factor = load_queries(
        slots, own, tl.zeros([ROWS], tl.int32) + head, slot_stride, slot_head, inside, scale,
        0, False, ROWS, DIM,
    )  # fmt: skip
    low = tl.zeros([ROWS], tl.int32)
    high = low + end - 1
    # There are neither scales nor a table; their places are never read.
    pointers = (kv + first * token_stride + head.to(tl.int64) * head_stride, kv, starts)
    strides = (0, v_offset, token_stride, 0, 0, 0)
    state = empty_state(ROWS, DIM)
    whole = start + (end - start) // TILE * TILE
    for tile in tl.range(start, whole, TILE, num_stages=STAGES):
        tile = tl.multiple_of(tile, TILE)
        state = attend_tile(
            state, queries, row_factor, low, high, pointers, tile, end, strides,
            False, False, 0, False, 0.0, 0, TILE, HEAD_DIM, DIM,
        )  # fmt: skip
    if whole < end:
        state = attend_tile(
            state, queries, row_factor, low, high, pointers, whole, end, strides,
            True, True, 0, False, 0.0, 0, TILE, HEAD_DIM, DIM,
        )  # fmt: skip
    result, lse = result_of(state, 0, False)
    place = (item.to(tl.int64) * num_slots + slot) * tl.num_programs(0) + head
    at = place * tl.num_programs(2) + part
    tl.store(parts + at[:, None] * HEAD_DIM + dim[None, :], result, mask=inside)
    tl.store(part_lse + at, lse, mask=is_slot)


@triton.jit
def slots_merge_kernel(
    parts,
    part_lse,
    starts,
    out,
    num_slots,
    max_parts,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    CHUNK: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    item = row // num_slots
    num_tokens = tl.load(starts + item + 1) - tl.load(starts + item)
    place = row * tl.num_programs(1) + head
    count = tl.minimum(tl.cdiv(num_tokens, CHUNK), max_parts)
    pooled = merge_parts(parts, part_lse, place * max_parts, count, HEAD_DIM, DIM)
    dim = tl.arange(0, DIM)
    to = out + place * HEAD_DIM + dim
    tl.store(to, pooled.to(out.dtype.element_ty), mask=dim < HEAD_DIM)


def soft_slots(
    slots: torch.Tensor,
    kv: torch.Tensor,
    starts: torch.Tensor,
    *,
    max_tokens: int,
    scale: float,
) -> torch.Tensor:
    """Tokens of each picture pooled into slots; see reference.py.

    Raises: ValueError for more slots or wider heads than a program has room for.
    """
    num_slots, num_heads, head_dim = slots.shape
    if num_slots > MAX_SLOTS or head_dim > MAX_HEAD_DIM:
        raise ValueError(
            f"{num_slots} slots with heads of {head_dim}: there is room for {MAX_SLOTS} slots with "
            f"heads up to {MAX_HEAD_DIM}."
        )
    num_items = len(starts) - 1
    out = torch.empty((num_items, *slots.shape), dtype=slots.dtype, device=slots.device)
    if not num_items or not num_slots:
        return out
    row = variant(slots.dtype, num_slots)
    config = configuration("soft_slots", row, architecture(slots.device))
    max_parts = max(1, triton.cdiv(max_tokens, config["CHUNK"]))
    parts = torch.empty(
        (num_items, num_slots, num_heads, max_parts, head_dim),
        dtype=torch.float32, device=slots.device,
    )  # fmt: skip
    part_lse = torch.empty(parts.shape[:-1], dtype=torch.float32, device=slots.device)
    merge = configuration("soft_slots", "merge", architecture(slots.device))
    sizes = {"HEAD_DIM": head_dim, "DIM": max(16, triton.next_power_of_2(head_dim))}
    soft_slots_kernel[(num_heads, num_items, max_parts)](
        slots, kv, starts, parts, part_lse, scale, slots.stride(0), slots.stride(1),
        *kv.stride()[:3], num_slots, ROWS=max(16, triton.next_power_of_2(num_slots)), **sizes,
        **config,
    )  # fmt: skip
    slots_merge_kernel[(num_items * num_slots, num_heads)](
        parts, part_lse, starts, out, num_slots, max_parts, CHUNK=config["CHUNK"], **sizes, **merge,
    )  # fmt: skip
    return out


def variant(dtype: torch.dtype, num_slots: int) -> str:
    """The launch table's row."""
    if dtype == torch.float32:
        return "float32"
    return "few" if num_slots <= 16 else "many"
