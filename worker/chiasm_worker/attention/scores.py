"""From scores to outputs: masked softmax with an optional soft cap, query heads folded.

Must not know: blocks, requests.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention

from chiasm_worker.attention.base import AttentionLayer


def attend(
    layer: AttentionLayer,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
) -> torch.Tensor:
    """[batch, num_kv_heads, num_queries, head_dim] of q of this shape over k and v.

    Args:
        mask: bool, broadcast to [batch, num_kv_heads, num_queries, num_keys]; each query must see
            one key at least. None: each sees all.
    """
    if not layer.soft_cap:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=layer.scale)
    # The fused kernels know no cap. Softmax in fp32, as in transformers.
    scores = torch.matmul(q, k.transpose(-1, -2)) * layer.scale
    scores = layer.soft_cap * torch.tanh(scores / layer.soft_cap)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return torch.matmul(scores.softmax(-1, dtype=torch.float32).to(q.dtype), v)


def fold_and_attend(
    layer: AttentionLayer,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
) -> torch.Tensor:
    """[num_queries, num_heads * head_dim] of one sequence.

    The query heads that share a K/V head are folded into the query's length, so that K and V are
    never repeated.

    Args:
        q: [num_queries, num_heads, head_dim].
        k: [num_keys, num_kv_heads, head_dim]; v likewise.
        mask: [group * num_queries, num_keys] bool, repeated for each of the `group` query heads
            that share a K/V head. None: each query sees all keys.
    """
    num_queries, num_heads, head_dim = q.shape
    num_kv_heads = k.shape[1]
    group = num_heads // num_kv_heads
    # [num_queries, num_kv_heads, group, head_dim] -> [num_kv_heads, group * num_queries, head_dim]
    folded = q.view(num_queries, num_kv_heads, group, head_dim).permute(1, 2, 0, 3)
    out = attend(
        layer,
        folded.reshape(1, num_kv_heads, group * num_queries, head_dim),
        k.transpose(0, 1)[None],
        v.transpose(0, 1)[None],
        mask,
    )
    out = out.view(num_kv_heads, group, num_queries, head_dim).permute(2, 0, 1, 3)
    return out.reshape(num_queries, num_heads * head_dim)
