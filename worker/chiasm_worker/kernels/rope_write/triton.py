"""q/k norm, rotation, quantisation and write of K and V in one launch; see README.md."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from chiasm_worker.kernels.codes import FORM_CODES, form_of
from chiasm_worker.kernels.codes_jit import E4M3, FLOAT, as_e4m3, as_int8
from chiasm_worker.kernels.launch import architecture, configuration
from chiasm_worker.kernels.rope_write.shape import half_of, variant


@triton.jit
def _norm_halves(
    low, high, weight, dim, eps, OFFSET: tl.constexpr, HEAD_DIM: tl.constexpr, HALF: tl.constexpr
):
    """RMSNorm of heads that lie in two halves, rounded as the layer rounds."""
    a, b = low.to(tl.float32), high.to(tl.float32)
    mean = (tl.sum(a * a, 1) + tl.sum(b * b, 1)) / HEAD_DIM
    factor = tl.rsqrt(mean + eps)[:, None]
    inside = dim < HEAD_DIM // 2
    wa = tl.load(weight + dim, mask=inside, other=0.0)[None, :]
    wb = tl.load(weight + HEAD_DIM // 2 + dim, mask=inside, other=0.0)[None, :]
    a, b = a * factor, b * factor
    if OFFSET:
        a, b = a * (1.0 + wa.to(tl.float32)), b * (1.0 + wb.to(tl.float32))
    else:
        a, b = a.to(low.dtype) * wa, b.to(low.dtype) * wb
    return a.to(low.dtype), b.to(low.dtype)


@triton.jit
def _rotate_halves(low, high, cos, sin, token, dim, cos_stride, HEAD_DIM: tl.constexpr):
    """x * cos, rounded, plus the other half * sin, rounded; sin is negative in the first half."""
    at = token * cos_stride + dim
    half: tl.constexpr = HEAD_DIM // 2
    inside = dim < half
    cos_low = tl.load(cos + at, mask=inside, other=0.0)[None, :]
    cos_high = tl.load(cos + at + half, mask=inside, other=0.0)[None, :]
    sin_low = tl.load(sin + at, mask=inside, other=0.0)[None, :].to(tl.float32)
    sin_high = tl.load(sin + at + half, mask=inside, other=0.0)[None, :].to(tl.float32)
    first = (low * cos_low).to(tl.float32) + high.to(tl.float32) * sin_low
    second = (high * cos_high).to(tl.float32) + low.to(tl.float32) * sin_high
    return first.to(low.dtype), second.to(low.dtype)


@triton.jit
def _write_halves(
    low, high, kv, scales, inside, half, head, FORM: tl.constexpr, CODE_MAX: tl.constexpr
):
    """Store heads into their slot; of a quantised cache codes and one scale a head."""
    if FORM == FLOAT:
        tl.store(kv, low.to(kv.dtype.element_ty), mask=inside)
        tl.store(kv + half, high.to(kv.dtype.element_ty), mask=inside)
    else:
        a, b = low.to(tl.float32), high.to(tl.float32)
        largest = tl.maximum(tl.max(tl.abs(a), 1), tl.max(tl.abs(b), 1))
        scale = tl.maximum(tl.math.div_rn(largest, CODE_MAX), 1e-12)
        # A maximum leaves NaN out; the scale must not.
        unsound = tl.max(((a != a) | (b != b)).to(tl.int32), 1) > 0
        scale = tl.where(unsound, float("nan"), scale)
        a, b = tl.math.div_rn(a, scale[:, None]), tl.math.div_rn(b, scale[:, None])
        if FORM == E4M3:
            tl.store(kv, as_e4m3(a), mask=inside)
            tl.store(kv + half, as_e4m3(b), mask=inside)
        else:
            tl.store(kv, as_int8(a), mask=inside)
            tl.store(kv + half, as_int8(b), mask=inside)
        tl.store(scales, scale, mask=head)


@triton.jit
def rope_write_kernel(
    q,
    k,
    v,
    cos,
    sin,
    q_weight,
    k_weight,
    slots,
    kv,
    scales,
    out,
    eps,
    q_token,
    k_token,
    v_token,
    q_head,
    k_head,
    cos_stride,
    block_stride,
    v_offset,
    token_stride,
    head_stride,
    scale_block,
    scale_v,
    scale_token,
    num_heads,
    num_kv_heads,
    ROTATED: tl.constexpr,
    NORMED: tl.constexpr,
    OFFSET: tl.constexpr,
    FORM: tl.constexpr,
    CODE_MAX: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    HEADS: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    num_q = tl.cdiv(num_heads, HEADS)
    half: tl.constexpr = HEAD_DIM // 2
    dim = tl.arange(0, HALF)
    if tl.program_id(1) < num_q:
        head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
        inside = (head < num_heads)[:, None] & (dim < half)[None, :]
        at = q + token * q_token + head[:, None] * q_head + dim[None, :]
        low = tl.load(at, mask=inside, other=0.0)
        high = tl.load(at + half, mask=inside, other=0.0)
        if NORMED:
            low, high = _norm_halves(low, high, q_weight, dim, eps, OFFSET, HEAD_DIM, HALF)
        low, high = _rotate_halves(low, high, cos, sin, token, dim, cos_stride, HEAD_DIM)
        to = out + (token * num_heads + head[:, None]) * HEAD_DIM + dim[None, :]
        tl.store(to, low, mask=inside)
        tl.store(to + half, high, mask=inside)
        return
    slot = tl.load(slots + token)
    if slot < 0:
        return
    block, place = slot // BLOCK_SIZE, slot % BLOCK_SIZE
    head = (tl.program_id(1) - num_q) * HEADS + tl.arange(0, HEADS)
    is_head = head < num_kv_heads
    inside = is_head[:, None] & (dim < half)[None, :]
    row = head[:, None].to(tl.int64) * k_head + dim[None, :]
    low = tl.load(k + token * k_token + row, mask=inside, other=0.0)
    high = tl.load(k + token * k_token + row + half, mask=inside, other=0.0)
    if NORMED:
        low, high = _norm_halves(low, high, k_weight, dim, eps, OFFSET, HEAD_DIM, HALF)
    if ROTATED:
        low, high = _rotate_halves(low, high, cos, sin, token, dim, cos_stride, HEAD_DIM)
    to = kv + block * block_stride + place * token_stride
    to += head[:, None].to(tl.int64) * head_stride + dim[None, :]
    scale_to = scales + block * scale_block + place * scale_token + head
    _write_halves(low, high, to, scale_to, inside, half, is_head, FORM, CODE_MAX)
    low = tl.load(v + token * v_token + row, mask=inside, other=0.0)
    high = tl.load(v + token * v_token + row + half, mask=inside, other=0.0)
    _write_halves(
        low, high, to + v_offset, scale_to + scale_v, inside, half, is_head, FORM, CODE_MAX
    )


def kv_write(
    new: torch.Tensor, slots: torch.Tensor, kv: torch.Tensor, scales: torch.Tensor | None = None
) -> tuple[torch.Tensor, ...]:
    """Write K and V of new tokens into their slots, in place; see reference.py."""
    k, v = new[:, 0], new[:, 1]
    _launch(k, k, v, None, slots, kv, scales, None, 0.0, False)
    return (kv,) if scales is None else (kv, scales)


def rope_write(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    slots: torch.Tensor,
    kv: torch.Tensor,
    scales: torch.Tensor | None = None,
    *,
    norms: tuple[torch.Tensor, torch.Tensor] | None = None,
    eps: float = 0.0,
    offset: bool = False,
) -> tuple[torch.Tensor, ...]:
    """Rotated queries; K is rotated too, and K and V are written; see reference.py."""
    num_kv_heads = kv.shape[3]
    num_heads = qkv.shape[1] - 2 * num_kv_heads
    q, k, v = qkv.split([num_heads, num_kv_heads, num_kv_heads], 1)
    out = _launch(q, k, v, (cos, sin), slots, kv, scales, norms, eps, offset)
    return (out, kv) if scales is None else (out, kv, scales)


def _launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    rotation: tuple[torch.Tensor, torch.Tensor] | None,
    slots: torch.Tensor,
    kv: torch.Tensor,
    scales: torch.Tensor | None,
    norms: tuple[torch.Tensor, torch.Tensor] | None,
    eps: float,
    offset: bool,
) -> torch.Tensor:
    num_tokens, num_kv_heads, head_dim = k.shape
    if head_dim % 2:
        raise ValueError(f"Heads of {head_dim} have no halves to rotate.")
    config = configuration("rope_write", variant(head_dim), architecture(k.device))
    # Without a rotation there are no queries either.
    num_heads = 0 if rotation is None else q.shape[1]
    out = torch.empty((num_tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    if not num_tokens:
        return out
    cos, sin = (k, k) if rotation is None else rotation
    weights = (k, k) if norms is None else norms
    form = form_of(kv.dtype)
    heads = config["HEADS"]
    grid = (num_tokens, triton.cdiv(num_heads, heads) + triton.cdiv(num_kv_heads, heads))
    rope_write_kernel[grid](
        q, k, v, cos, sin, *weights, slots, kv, k if scales is None else scales, out, eps,
        q.stride(0), k.stride(0), v.stride(0), q.stride(1), k.stride(1), cos.stride(0),
        *kv.stride()[:4], *((0, 0, 0) if scales is None else scales.stride()[:3]),
        num_heads, num_kv_heads,
        ROTATED=rotation is not None, NORMED=norms is not None, OFFSET=offset,
        FORM=FORM_CODES[form], CODE_MAX=448.0 if form == "e4m3" else 127.0,
        BLOCK_SIZE=kv.shape[2], HEAD_DIM=head_dim,
        HALF=half_of(head_dim), **config,
    )  # fmt: skip
    return out
