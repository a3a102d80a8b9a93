"""Attention over one tile of keys in the cache; functions for kernels.

Scores are in base 2. Whoever calls them knows which keys a row sees, as one range.
"""

from __future__ import annotations

import triton
import triton.language as tl

from chiasm_worker.kernels.codes_jit import FLOAT, as_number, unit

LOG2E = tl.constexpr(1.4426950408889634)
# Below every score, and finite: the difference of two of them is 0, not NaN.
LOWEST = tl.constexpr(-1.0e30)


@triton.jit
def capped(scores, CAP: tl.constexpr):
    """cap * tanh(scores / cap); tanh(u) = 2 sigmoid(2 u) - 1."""
    return CAP * (2.0 * tl.sigmoid(scores * (2.0 / CAP)) - 1.0)


@triton.jit
def attend_tile(
    state,
    q,
    row_factor,
    row_low,
    row_high,
    pointers,
    start,
    length,
    strides,
    TAIL: tl.constexpr,
    MASKED: tl.constexpr,
    FORM: tl.constexpr,
    NATIVE: tl.constexpr,
    CAP: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
):
    """Add keys start..start+TILE-1 to the running softmax.

    TAIL: some of them may not exist. MASKED: a row sees only keys row_low..row_high.
    BLOCK_SIZE: 0 where keys lie back to back and no table says where.
    state: (largest score, sum of shares, sums of V, largest scale of V) of each row.
    """
    highest, total, sums, reach = state
    kv, scales, table = pointers
    block_stride, v_offset, token_stride, scale_block, scale_v, scale_token = strides
    key = tl.arange(0, TILE)
    dim = tl.arange(0, DIM)
    exists = start + key < length
    if BLOCK_SIZE == 0:
        block = tl.zeros([], tl.int64)
        slot = (start + key).to(tl.int64)
    elif BLOCK_SIZE % TILE == 0:
        # The whole tile lies in one block.
        block = tl.load(table + start // BLOCK_SIZE).to(tl.int64)
        slot = start % BLOCK_SIZE + key
    else:
        at = table + (start + key) // BLOCK_SIZE
        block = (tl.load(at, mask=exists, other=0) if TAIL else tl.load(at)).to(tl.int64)
        slot = (start + key) % BLOCK_SIZE
    offset = block * block_stride + slot * token_stride
    k_at = kv + offset[None, :] + dim[:, None]
    if TAIL or HEAD_DIM != DIM:
        # What lies behind the last token is another request's, or nobody's: 0 x NaN is NaN.
        inside = exists[None, :] & (dim < HEAD_DIM)[:, None]
        k = tl.load(k_at, mask=inside, other=0)
    else:
        k = tl.load(k_at)
    k = as_number(k, FORM, NATIVE).to(q.dtype)
    scores = tl.dot(q, k, input_precision="ieee") * row_factor[:, None]
    if FORM != FLOAT:
        scale_offset = block * scale_block + slot * scale_token
        k_scale = tl.load(scales + scale_offset, mask=exists, other=0.0)
        scores *= k_scale[None, :]
    if CAP > 0.0:
        scores = capped(scores, CAP * LOG2E)
    if MASKED:
        position = start + key[None, :]
        seen = (position >= row_low[:, None]) & (position <= row_high[:, None])
        scores = tl.where(seen, scores, float("-inf"))
    now = tl.maximum(highest, tl.max(scores, 1))
    share = tl.exp2(scores - now[:, None])
    fade = tl.exp2(highest - now)
    total = total * fade + tl.sum(share, 1)
    if FORM != FLOAT:
        # Shares times V's scales stay within fp16: relative to the largest scale so far.
        v_scale = tl.load(scales + scale_offset + scale_v, mask=exists, other=0.0)
        further = tl.maximum(reach, tl.max(v_scale, 0))
        share *= (v_scale / further)[None, :]
        fade *= reach / further
        reach = further
    v_at = kv + offset[:, None] + (v_offset + dim[None, :])
    if TAIL or HEAD_DIM != DIM:
        inside = exists[:, None] & (dim < HEAD_DIM)[None, :]
        v = tl.load(v_at, mask=inside, other=0)
    else:
        v = tl.load(v_at)
    v = as_number(v, FORM, NATIVE).to(q.dtype)
    sums = tl.dot(share.to(v.dtype), v, sums * fade[:, None], input_precision="ieee")
    return now, total, sums, reach


@triton.jit
def load_queries(
    q,
    token,
    head,
    q_token,
    q_head,
    inside,
    scale,
    FORM: tl.constexpr,
    NATIVE: tl.constexpr,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
):
    """Rows of q [ROWS, DIM] ready for products with the cache, and the factor of their scores."""
    at = q + token[:, None] * q_token + head[:, None] * q_head + tl.arange(0, DIM)[None, :]
    queries = tl.load(at, mask=inside, other=0.0)
    row_factor = tl.full([ROWS], LOG2E, tl.float32) * scale
    if FORM != FLOAT:
        # Into fp16's range, whatever the outliers of a row.
        wide = queries.to(tl.float32)
        largest = tl.maximum(tl.max(tl.abs(wide), 1), 1e-30)
        queries = wide / largest[:, None]
        # fp32 stays, where there is time for it: on the interpreter.
        if q.dtype.element_ty != tl.float32:
            queries = queries.to(tl.float16)
        row_factor *= largest * unit(FORM, NATIVE)
    return queries, row_factor


@triton.jit
def empty_state(ROWS: tl.constexpr, DIM: tl.constexpr):
    """The running softmax before the first tile."""
    return (
        tl.full([ROWS], LOWEST, tl.float32),
        tl.zeros([ROWS], tl.float32),
        tl.zeros([ROWS, DIM], tl.float32),
        1e-30,
    )


@triton.jit
def result_of(state, FORM: tl.constexpr, NATIVE: tl.constexpr):
    """(result, log2 of the exponentials' sum) of each row; where nothing is seen 0, LOWEST."""
    highest, total, sums, reach = state
    sees = total > 0.0
    safe = tl.where(sees, total, 1.0)
    result = sums * tl.where(sees, 1.0 / safe, 0.0)[:, None]
    if FORM != FLOAT:
        result *= reach * unit(FORM, NATIVE)
    return result, tl.where(sees, highest + tl.log2(safe), LOWEST)


@triton.jit
def merge_parts(parts, part_lse, first, count, HEAD_DIM: tl.constexpr, DIM: tl.constexpr):
    """One row's results of its chunks first..first+count-1, weighed: [DIM]; 0 without a chunk.

    parts: [.., HEAD_DIM] fp32; part_lse: [..], log2 of each chunk's exponentials' sum. One after
    the other, so that the order does not depend on how many chunks other rows have.
    """
    dim = tl.arange(0, DIM)
    highest = LOWEST
    weight = 0.0
    sums = tl.zeros([DIM], tl.float32)
    for part in tl.range(0, count):
        lse = tl.load(part_lse + first + part)
        now = tl.maximum(highest, lse)
        fade, share = tl.exp2(highest - now), tl.exp2(lse - now)
        at = parts + (first + part) * HEAD_DIM + dim
        sums = sums * fade + tl.load(at, mask=dim < HEAD_DIM, other=0.0) * share
        weight = weight * fade + share
        highest = now
    return sums / tl.where(weight > 0.0, weight, 1.0)
