"""Cross-attention in torch, one row at a time, in fp32."""

from __future__ import annotations

import torch

from chiasm_worker.kernels.paged_decode.reference import attend, gathered


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
    """Attention [num_rows, num_heads, head_dim] of rows to the vectors that a plan gives each.

    Args:
        q: [num_rows, num_heads, head_dim].
        kv: [num_blocks, 2, block_size, num_kv_heads, head_dim], K before V, of media items.
        block_table: [num_items, width] int32.
        few, many: [.., 6] int32, see plan.py.
        num_parts: [num_rows] int32, of which max_parts is the largest.
    """
    out = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    entries = torch.cat((few, many)).tolist()
    for row in range(len(q)):
        keys, values = [], []
        for source, first, count, start, end, _ in entries:
            if first <= row < first + count:
                k, v = gathered(kv, None, block_table[source], end)
                keys.append(k[start:])
                values.append(v[start:])
        k, v = torch.cat(keys), torch.cat(values)
        mask = torch.ones(1, len(k), dtype=torch.bool, device=q.device)
        out[row] = attend(q[row : row + 1], k, v, mask, scale, 0.0)[0].to(q.dtype)
    return out
