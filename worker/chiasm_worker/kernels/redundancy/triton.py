"""Redundancy of blocks: moments of each block, then its share of the sequence's; see README.md."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from chiasm_worker.kernels.codes import FORM_CODES, form_of
from chiasm_worker.kernels.codes_jit import FLOAT, as_number, unit
from chiasm_worker.kernels.launch import architecture, configuration
from chiasm_worker.kernels.redundancy.reference import EQUAL

# Numbers of one head in a block, that a program holds.
MAX_NUMBERS = 16384


@triton.jit
def moments_kernel(
    kv,
    scales,
    block_table,
    lens,
    means,
    withins,
    block_stride,
    v_offset,
    token_stride,
    head_stride,
    scale_block,
    scale_v,
    scale_token,
    table_stride,
    FORM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
):
    index, sequence = tl.program_id(0), tl.program_id(1).to(tl.int64)
    head, side = tl.program_id(2) // 2, tl.program_id(2) % 2
    count = tl.minimum(tl.load(lens + sequence) - index * BLOCK_SIZE, BLOCK_SIZE)
    if count <= 0:
        return
    block = tl.load(block_table + sequence * table_stride + index).to(tl.int64)
    token, dim = tl.arange(0, SIZE), tl.arange(0, DIM)
    exists = token < count
    inside = exists[:, None] & (dim < HEAD_DIM)[None, :]
    to_head = block * block_stride + side * v_offset + head.to(tl.int64) * head_stride
    at = kv + to_head + token[:, None] * token_stride + dim[None, :]
    x = as_number(tl.load(at, mask=inside, other=0), FORM, False).to(tl.float32)
    if FORM != FLOAT:
        own = scales + block * scale_block + side * scale_v + head + token * scale_token
        scale = tl.load(own, mask=exists, other=0.0) * unit(FORM, False)
        x *= scale[:, None]
    mean = tl.sum(x, 0) / count
    apart = tl.where(inside, x - mean[None, :], 0.0)
    within = tl.sum(apart * apart) / count
    place = (sequence * tl.num_programs(0) + index) * tl.num_programs(2) + tl.program_id(2)
    tl.store(means + place * HEAD_DIM + dim, mean, mask=dim < HEAD_DIM)
    tl.store(withins + place, within)


@triton.jit
def _total(
    means, withins, length, first, step, EQUAL_SHARE, BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr, DIM: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """How all tokens of a sequence differ in one head's K or V; 0 where they are equal."""
    lane, dim = tl.arange(0, BLOCKS), tl.arange(0, DIM)
    num_blocks = tl.cdiv(length, BLOCK_SIZE)
    mean = tl.zeros([DIM], tl.float32)
    for start in tl.range(0, num_blocks, BLOCKS):
        index = start + lane
        count = tl.maximum(tl.minimum(length - index * BLOCK_SIZE, BLOCK_SIZE), 0)
        at = means + (first + index[:, None].to(tl.int64) * step) * HEAD_DIM + dim[None, :]
        inside = (index < num_blocks)[:, None] & (dim < HEAD_DIM)[None, :]
        own = tl.load(at, mask=inside, other=0.0)
        mean += tl.sum(own * (count.to(tl.float32) / length)[:, None], 0)
    total = 0.0
    for start in tl.range(0, num_blocks, BLOCKS):
        index = start + lane
        is_block = index < num_blocks
        count = tl.maximum(tl.minimum(length - index * BLOCK_SIZE, BLOCK_SIZE), 0)
        place = first + index.to(tl.int64) * step
        inside = is_block[:, None] & (dim < HEAD_DIM)[None, :]
        own = tl.load(means + place[:, None] * HEAD_DIM + dim[None, :], mask=inside, other=0.0)
        apart = tl.where(inside, own - mean[None, :], 0.0)
        within = tl.load(withins + place, mask=is_block, other=0.0)
        differ = tl.sum(apart * apart, 1) + within
        total += tl.sum(differ * (count.to(tl.float32) / length), 0)
    return tl.where(total > EQUAL_SHARE * tl.sum(mean * mean, 0), total, 0.0)


@triton.jit
def share_kernel(
    means,
    withins,
    lens,
    out,
    width,
    num_kv_heads,
    EQUAL_SHARE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    sequence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    length = tl.load(lens + sequence)
    step = 2 * num_kv_heads
    first = sequence * width * step + 2 * head
    k_total = _total(
        means, withins, length, first, step, EQUAL_SHARE, BLOCK_SIZE, HEAD_DIM, DIM, BLOCKS
    )
    v_total = _total(
        means, withins, length, first + 1, step, EQUAL_SHARE, BLOCK_SIZE, HEAD_DIM, DIM, BLOCKS
    )
    for start in tl.range(0, tl.cdiv(length, BLOCK_SIZE), BLOCKS):
        index = start + tl.arange(0, BLOCKS)
        count = length - index * BLOCK_SIZE
        is_block = count > 0
        place = first + index.to(tl.int64) * step
        k = _explained(tl.load(withins + place, mask=is_block, other=0.0), k_total)
        v = _explained(tl.load(withins + place + 1, mask=is_block, other=0.0), v_total)
        # A block of one token frees nothing.
        share = tl.where(count > 1, tl.maximum(tl.minimum(k, v), 0.0), 0.0)
        to = out + (sequence * width + index) * num_kv_heads + head
        tl.store(to, share, mask=is_block)


@triton.jit
def _explained(within, total):
    """What of the total a block's mean explains; all where nothing differs."""
    return tl.where(total > 0.0, 1.0 - within / tl.where(total > 0.0, total, 1.0), 1.0)


def redundancy(
    kv: torch.Tensor,
    block_table: torch.Tensor,
    lens: torch.Tensor,
    scales: torch.Tensor | None = None,
) -> torch.Tensor:
    """R of each head in each block; see reference.py.

    Raises: ValueError for blocks that no program can hold.
    """
    _, _, block_size, num_kv_heads, head_dim = kv.shape
    num_sequences, width = block_table.shape
    out = torch.zeros((num_sequences, width, num_kv_heads), dtype=torch.float32, device=kv.device)
    size, dim = triton.next_power_of_2(block_size), max(16, triton.next_power_of_2(head_dim))
    name = variant(size * dim)
    if not out.numel():
        return out
    means = torch.empty(
        (num_sequences, width, num_kv_heads, 2, head_dim), dtype=torch.float32, device=kv.device
    )
    withins = torch.empty(means.shape[:-1], dtype=torch.float32, device=kv.device)
    sizes = {"BLOCK_SIZE": block_size, "HEAD_DIM": head_dim, "DIM": dim}
    scale_strides = (0, 0, 0) if scales is None else scales.stride()[:3]
    machine = architecture(kv.device)
    moments_kernel[(width, num_sequences, 2 * num_kv_heads)](
        kv, means if scales is None else scales, block_table, lens, means, withins,
        *kv.stride()[:4], *scale_strides, block_table.stride(0),
        FORM=FORM_CODES[form_of(kv.dtype)], SIZE=size, **sizes,
        **configuration("redundancy", name, machine),
    )  # fmt: skip
    share_kernel[(num_sequences, num_kv_heads)](
        means, withins, lens, out, width, num_kv_heads, EQUAL_SHARE=EQUAL, **sizes,
        **configuration("redundancy", "share", machine),
    )  # fmt: skip
    return out


def variant(numbers: int) -> str:
    """The launch table's row for blocks of so many numbers of one head."""
    if numbers > MAX_NUMBERS:
        raise ValueError(
            f"A block holds {numbers} numbers of a head, rounded up; a program has room for "
            f"{MAX_NUMBERS}."
        )
    return "default" if numbers <= 4096 else "wide"
