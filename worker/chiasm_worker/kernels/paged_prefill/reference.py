"""Prefill attention in torch, one tile of queries at a time, in fp32."""

from __future__ import annotations

import torch

from chiasm_worker.kernels.paged_decode.reference import attend, gathered


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
    """Attention [num_tokens, num_heads, head_dim] of many new tokens.

    Args:
        q: [num_tokens, num_heads, head_dim], the sequences' new tokens back to back.
        kv: [num_blocks, 2, block_size, num_kv_heads, head_dim], K before V; the new ones included.
        block_table: [num_sequences, width] int32.
        tiles: [num_tiles, 8] int32, see plan.py.
        shape: (queries, keys) of the tiles that the plan was made for; see shape.py.
        row_low: [num_tokens] int32, the first key each row sees; row_high the last.
        scales: [num_blocks, 2, block_size, num_kv_heads] fp32 of a quantised cache.
        soft_cap: scores become cap * tanh(score / cap); 0: they stay.
    """
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    for sequence, row, count, *_, length in tiles.tolist():
        rows = slice(row, row + count)
        k, v = gathered(kv, scales, block_table[sequence], length)
        keys = torch.arange(length, device=q.device)
        mask = (keys >= row_low[rows, None]) & (keys <= row_high[rows, None])
        out[rows] = attend(q[rows], k, v, mask, scale, soft_cap).to(q.dtype)
    return out
