"""Decode attention in torch, one sequence at a time, in fp32."""

from __future__ import annotations

import torch

from chiasm_worker.kernels.codes import decode


def gathered(
    kv: torch.Tensor, scales: torch.Tensor | None, block_ids: torch.Tensor, length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """fp32 K and V [length, num_kv_heads, head_dim] of one sequence."""
    ids = block_ids[: -(-length // kv.shape[2])].long()
    # [num_used, 2, block_size, ...] -> [2, num_used * block_size, ...]
    codes = kv[ids].transpose(0, 1).flatten(1, 2)[:, :length]
    own = None if scales is None else scales[ids].transpose(0, 1).flatten(1, 2)[:, :length]
    k, v = decode(codes, own)
    return k, v


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float, cap: float
) -> torch.Tensor:
    """fp32 [num_queries, num_heads, head_dim]; k, v [num_keys, num_kv_heads, head_dim].

    Args:
        mask: [num_queries, num_keys]; a query that sees nothing gets zeros.
    """
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q.float(), k) * scale
    if cap:
        scores = cap * torch.tanh(scores / cap)
    scores = scores.masked_fill(~mask, float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1).nan_to_num(nan=0.0), v)


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
    """Attention [num_tokens, num_heads, head_dim] of the last tokens of each sequence.

    Args:
        q: [num_tokens, num_heads, head_dim], the sequences' new tokens back to back.
        kv: [num_blocks, 2, block_size, num_kv_heads, head_dim], K before V; the new ones included.
        block_table: [num_sequences, width] int32.
        query_starts: [num_sequences + 1] int32; sequence i has q's rows starts[i]..starts[i+1]-1.
        lens: [num_sequences] int32, tokens of each sequence, the new ones included.
        max_queries: no sequence has more new tokens.
        scales: [num_blocks, 2, block_size, num_kv_heads] fp32 of a quantised cache.
        window: tokens a query may look back to, itself included; 0: all.
        soft_cap: scores become cap * tanh(score / cap); 0: they stay.
    """
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    for i, length in enumerate(lens.tolist()):
        rows = slice(int(query_starts[i]), int(query_starts[i + 1]))
        count = rows.stop - rows.start
        if not count:
            continue
        k, v = gathered(kv, scales, block_table[i], length)
        queries = torch.arange(length - count, length, device=q.device)[:, None]
        keys = torch.arange(length, device=q.device)
        mask = keys <= queries
        if window:
            mask &= keys > queries - window
        out[rows] = attend(q[rows], k, v, mask, scale, soft_cap).to(q.dtype)
    return out
