"""q/k norm, rotation and write of K and V in torch, rounded where the decoder's layers round."""

from __future__ import annotations

import torch

from chiasm_worker.kernels.codes import encode


def _normed(x: torch.Tensor, weight: torch.Tensor, eps: float, offset: bool) -> torch.Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    if offset:
        return (wide * (1.0 + weight.float())).to(x.dtype)
    return wide.to(x.dtype) * weight


def kv_write(
    new: torch.Tensor, slots: torch.Tensor, kv: torch.Tensor, scales: torch.Tensor | None = None
) -> tuple[torch.Tensor, ...]:
    """Write K and V of new tokens into their slots, in place.

    Args:
        new: [num_tokens, 2, num_kv_heads, head_dim].
        slots: [num_tokens] int64, block * block_size + place in the block; -1: not written.
        kv: [num_blocks, 2, block_size, num_kv_heads, head_dim].
        scales: [num_blocks, 2, block_size, num_kv_heads] fp32 of a quantised cache.

    Returns: kv, and scales where there are some.
    """
    used = slots >= 0
    blocks, places = slots[used] // kv.shape[2], slots[used] % kv.shape[2]
    if scales is None:
        kv[blocks, :, places] = new[used].to(kv.dtype)
        return (kv,)
    codes, own = encode(new[used], kv.dtype)
    kv[blocks, :, places], scales[blocks, :, places] = codes, own
    return kv, scales


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
    """Rotated queries; K is rotated too, and K and V are written into their slots, in place.

    Args:
        qkv: [num_tokens, num_heads + 2 * num_kv_heads, head_dim].
        cos: [num_tokens, head_dim], of whichever axis each frequency follows: plain positions and
            M-RoPE are one. sin likewise, its first half negative.
        norms: weights [head_dim] of q's and k's RMSNorm; offset: Gemma's form.
        slots, kv, scales: as in `kv_write`.

    Returns: q [num_tokens, num_heads, head_dim], kv, and scales where there are some.
    """
    num_kv_heads = kv.shape[3]
    num_heads = qkv.shape[1] - 2 * num_kv_heads
    q, k, v = qkv.split([num_heads, num_kv_heads, num_kv_heads], 1)
    if norms is not None:
        q, k = (_normed(x, w, eps, offset) for x, w in zip((q, k), norms, strict=True))
    half = qkv.shape[2] // 2
    q, k = (torch.addcmul(x * cos[:, None], x.roll(half, -1), sin[:, None]) for x in (q, k))
    return (q, *kv_write(torch.stack((k, v), 1), slots, kv, scales))
