"""Packed attention over blocks equals attention over plain sequences, one at a time."""

from __future__ import annotations

import pytest
import torch
from chiasm_worker.attention.base import AttentionLayer, SequenceChunk
from chiasm_worker.attention.reference import ReferenceAttention

BLOCK, KV_HEADS, HEAD_DIM = 4, 2, 8


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int) -> torch.Tensor:
    """[new, heads, dim] over [seq, kv_heads, dim], query i at position seq - new + i."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * HEAD_DIM**-0.5
    queries = torch.arange(k.shape[0] - q.shape[0], k.shape[0])[:, None]
    keys = torch.arange(k.shape[0])
    hidden = keys > queries
    if window:
        hidden |= keys <= queries - window
    scores = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return torch.einsum("hqk,khd->qhd", scores, v).flatten(1)


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize(
    "chunks",
    [
        [(0, 5)],
        [(6, 3)],
        [(9, 1)],
        [(9, 1), (0, 1), (3, 1)],
        [(0, 4), (11, 1), (2, 6), (4, 1)],
    ],
    ids=["first chunk", "later chunk", "one decode", "decodes", "mixed"],
)
def test_equals_plain_attention(chunks: list[tuple[int, int]], window: int, group: int):
    torch.manual_seed(0)
    # Blocks that were never written hold NaN: whatever reads them shows.
    kv = torch.full((32, 1, 2, BLOCK, KV_HEADS, HEAD_DIM), float("nan"))
    free = torch.randperm(32).tolist()
    sequences, packed = [], []
    for computed, new in chunks:
        block_ids = [free.pop() for _ in range(-(-(computed + new) // BLOCK))]
        k, v = (torch.randn(computed + new, KV_HEADS, HEAD_DIM) for _ in range(2))
        for i in range(computed):
            kv[block_ids[i // BLOCK], 0, :, i % BLOCK] = torch.stack((k[i], v[i]))
        sequences.append((torch.randn(new, KV_HEADS * group, HEAD_DIM), k, v))
        packed.append(SequenceChunk(computed, new, block_ids))
    step = ReferenceAttention(kv).begin(packed)
    q = torch.cat([sequence[0] for sequence in sequences])
    new_kv = torch.cat(
        [torch.stack((k[-q.shape[0] :], v[-q.shape[0] :]), 1) for q, k, v in sequences]
    )
    layer = AttentionLayer(index=0, scale=HEAD_DIM**-0.5, sliding_window=window)
    want = torch.cat([plain(q, k, v, window) for q, k, v in sequences])
    torch.testing.assert_close(step.forward(layer, q, new_kv), want, atol=1e-5, rtol=1e-5)


def test_new_vectors_land_in_their_slots():
    kv = torch.zeros(4, 2, 2, BLOCK, KV_HEADS, HEAD_DIM)
    step = ReferenceAttention(kv).begin([SequenceChunk(3, 2, [2, 1])])
    new = torch.randn(2, 2, KV_HEADS, HEAD_DIM)
    step.forward(AttentionLayer(1, 1.0), torch.randn(2, KV_HEADS, HEAD_DIM), new)
    assert torch.equal(kv[2, 1, :, 3], new[0])
    assert torch.equal(kv[1, 1, :, 0], new[1])
    assert kv.count_nonzero() == new.numel()
