"""Redundancy of blocks in torch, one sequence at a time, in fp64."""

from __future__ import annotations

import torch

from chiasm_worker.kernels.paged_decode.reference import gathered

# Tokens whose variance is a smaller share of their mean's square are equal but for rounding.
EQUAL = 1e-10


def redundancy(
    kv: torch.Tensor,
    block_table: torch.Tensor,
    lens: torch.Tensor,
    scales: torch.Tensor | None = None,
) -> torch.Tensor:
    """R of each head in each block, [num_sequences, width, num_kv_heads] fp32; beyond the end 0.

    Args:
        kv: [num_blocks, 2, block_size, num_kv_heads, head_dim], K before V, of one layer.
        block_table: [num_sequences, width] int32.
        lens: [num_sequences] int32, tokens of each.
        scales: [num_blocks, 2, block_size, num_kv_heads] fp32 of a quantised cache.
    """
    _, _, block_size, num_kv_heads, _ = kv.shape
    out = torch.zeros((*block_table.shape, num_kv_heads), device=kv.device)
    for sequence, length in enumerate(lens.tolist()):
        if not length:
            continue
        both = torch.stack(gathered(kv, scales, block_table[sequence], length)).double()
        mean = both.mean(1)
        total = (both - mean[:, None]).square().sum(-1).mean(1)
        differ = total > EQUAL * mean.square().sum(-1)
        for index, own in enumerate(both.split(block_size, 1)):
            if own.shape[1] > 1:
                within = (own - own.mean(1, keepdim=True)).square().sum(-1).mean(1)
                explained = torch.where(differ, 1 - within / total, 1.0)
                out[sequence, index] = explained.clamp(min=0).amin(0)
    return out
