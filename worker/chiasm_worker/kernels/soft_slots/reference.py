"""Pooling into slots in torch, one picture at a time, in fp32."""

from __future__ import annotations

from itertools import pairwise

import torch


def soft_slots(
    slots: torch.Tensor,
    kv: torch.Tensor,
    starts: torch.Tensor,
    *,
    max_tokens: int,
    scale: float,
) -> torch.Tensor:
    """[num_items, num_slots, num_heads, head_dim] in the slots' type.

    Args:
        slots: [num_slots, num_heads, head_dim], the learned queries.
        kv: [num_tokens, 2, num_heads, head_dim], K before V, of all items back to back.
        starts: [num_items + 1] int32, where the tokens of each item begin, and the end.
        max_tokens: no item has more.
        scale: of the scores.
    """
    del max_tokens
    out = torch.zeros((len(starts) - 1, *slots.shape), dtype=slots.dtype, device=slots.device)
    edges = starts.tolist()
    for item, (start, end) in enumerate(pairwise(edges)):
        if start < end:
            k, v = kv[start:end].float().unbind(1)
            scores = torch.einsum("shd,thd->hst", slots.float(), k) * scale
            out[item] = torch.einsum("hst,thd->shd", scores.softmax(-1), v).to(slots.dtype)
    return out
