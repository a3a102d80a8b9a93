"""Packed attention over blocks equals dense masked attention over plain sequences.

Inputs are fresh and random; slots that nobody wrote hold NaN, so whatever reads one shows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from chiasm_contract.errors import InvariantError
from chiasm_worker.attention.base import AttentionLayer, CrossSource, SequenceChunk
from chiasm_worker.attention.heads import Rotation
from chiasm_worker.attention.reference import ReferenceAttention

BLOCK, CROSS_BLOCK, KV_HEADS, HEAD_DIM = 4, 3, 2, 8
SCALE = HEAD_DIM**-0.5
Span = tuple[int, int]


@dataclass
class Plain:
    """One request: its keys and values, how much is new, and which tokens see one another."""

    computed: int
    new: int
    spans: tuple[Span, ...] = ()

    def __post_init__(self) -> None:
        length = self.computed + self.new
        self.k, self.v = (torch.randn(length, KV_HEADS, HEAD_DIM) for _ in range(2))


def visible(layer: AttentionLayer, spans: Sequence[Span], query: int, key: int) -> bool:
    """The rule in words, one pair of tokens at a time."""
    together = any(start <= query < end and start <= key < end for start, end in spans)
    near = not layer.sliding_window or key > query - layer.sliding_window
    if layer.spans_pass_window:
        return together or (key <= query and near)
    return (together or key <= query) and near


def dense(
    layer: AttentionLayer, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """[queries, heads * dim] of q [queries, heads, dim]; k, v [keys, kv_heads, dim]."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * layer.scale
    if layer.soft_cap:
        scores = torch.tanh(scores / layer.soft_cap) * layer.soft_cap
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v).flatten(1)


def packed(
    sequences: Sequence[Plain], group: int
) -> tuple[torch.Tensor, list[SequenceChunk], torch.Tensor, torch.Tensor]:
    """An arena with the computed tokens in it, the chunks, and q, K and V of the new tokens."""
    kv = torch.full((64, 1, 2, BLOCK, KV_HEADS, HEAD_DIM), float("nan"))
    free = torch.randperm(64).tolist()
    chunks, new_kv = [], []
    for seq in sequences:
        length = seq.computed + seq.new
        block_ids = [free.pop() for _ in range(-(-length // BLOCK))]
        for i in range(seq.computed):
            kv[block_ids[i // BLOCK], 0, :, i % BLOCK] = torch.stack((seq.k[i], seq.v[i]))
        touched = tuple(span for span in seq.spans if span[1] > seq.computed)
        chunks.append(SequenceChunk(seq.computed, seq.new, block_ids, touched))
        new_kv.append(torch.stack((seq.k, seq.v), 1)[seq.computed :])
    num_new = sum(seq.new for seq in sequences)
    return kv, chunks, torch.randn(num_new, KV_HEADS * group, HEAD_DIM), torch.cat(new_kv)


def check(layer: AttentionLayer, sequences: Sequence[Plain], group: int) -> None:
    kv, chunks, q, new_kv = packed(sequences, group)
    want, row = [], 0
    for seq in sequences:
        mask = torch.tensor([
            [visible(layer, seq.spans, query, key) for key in range(seq.computed + seq.new)]
            for query in range(seq.computed, seq.computed + seq.new)
        ])  # fmt: skip
        want.append(dense(layer, q[row : row + seq.new], seq.k, seq.v, mask))
        row += seq.new
    heads = torch.cat((q, new_kv.flatten(1, 2)), dim=1)
    seen = ReferenceAttention(kv).begin(chunks).forward(layer, heads, Rotation.none(heads))
    torch.testing.assert_close(seen, torch.cat(want), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("soft_cap", [0.0, 1.5])
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
def test_equals_plain_attention(
    chunks: list[tuple[int, int]], window: int, soft_cap: float, group: int
):
    torch.manual_seed(0)
    layer = AttentionLayer(0, SCALE, sliding_window=window, soft_cap=soft_cap)
    check(layer, [Plain(*chunk) for chunk in chunks], group)


@pytest.mark.parametrize("passes", [True, False])
@pytest.mark.parametrize("soft_cap", [0.0, 1.5])
@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize(
    "sequences",
    [
        [(0, 9, ((0, 9),))],
        [(0, 9, ((2, 7),))],
        [(0, 12, ((1, 5), (5, 9)))],
        [(6, 8, ((7, 13),))],
        [(7, 1, ((7, 8),))],
        [(9, 2, ((3, 8),))],
        [(0, 10, ((4, 9),)), (5, 1, ()), (3, 6, ()), (8, 5, ((2, 6), (8, 12)))],
    ],
    ids=["whole prompt", "inside", "adjacent", "later chunk", "one token", "past", "mixed"],
)
def test_tokens_of_a_span_see_one_another(
    sequences: list[tuple[int, int, tuple[Span, ...]]], window: int, soft_cap: float, passes: bool
):
    """The fault: a prefix or picture under a causal mask, each token blind to what follows."""
    torch.manual_seed(1)
    layer = AttentionLayer(0, SCALE, window, spans_pass_window=passes, soft_cap=soft_cap)
    check(layer, [Plain(*seq) for seq in sequences], group=2)


@pytest.mark.parametrize("seed", range(20))
def test_random_batches_of_spans_windows_and_caps(seed: int):
    torch.manual_seed(seed)
    rng = random.Random(seed)
    sequences = []
    for _ in range(rng.randint(1, 4)):
        length, spans, at = rng.randint(1, 20), [], 0
        while (start := at + rng.randint(0, 6)) < length:
            at = min(length, start + rng.randint(1, 6))
            spans.append((start, at))
        # Computed tokens end anywhere but inside a span.
        ends = [n for n in range(length) if not any(s < n < e for s, e in spans)]
        computed = rng.choice(ends)
        sequences.append(Plain(computed, length - computed, tuple(spans)))
    layer = AttentionLayer(
        0, SCALE, rng.choice((0, 1, 4)), rng.random() < 0.5, rng.choice((0.0, 2.0))
    )
    check(layer, sequences, group=rng.choice((1, 2)))


@pytest.mark.parametrize("span", [(4, 9), (0, 3), (1, 5), (1, 6), (0, 9)])
def test_a_cut_span_is_a_bug(span: Span):
    """The fault: a span over two chunks, whose first half is computed without the second, or whose
    second half finds the first computed without it."""
    cut = rf"tokens 2\.\.5 cuts the span {span[0]}\.\.{span[1] - 1},"
    with pytest.raises(InvariantError, match=cut):
        SequenceChunk(2, 4, [0, 1], (span,))


@pytest.mark.parametrize("span", [(2, 6), (2, 3), (5, 6), (0, 2)])
def test_a_span_that_begins_or_ends_with_its_chunk_is_whole(span: Span):
    SequenceChunk(2, 4, [0, 1], (span,))


def test_new_vectors_land_in_their_slots():
    kv = torch.zeros(4, 2, 2, BLOCK, KV_HEADS, HEAD_DIM)
    step = ReferenceAttention(kv).begin([SequenceChunk(3, 2, [2, 1])])
    heads = torch.randn(2, 3 * KV_HEADS, HEAD_DIM)
    step.forward(AttentionLayer(1, 1.0), heads, Rotation.none(heads))
    new = heads[:, KV_HEADS:].unflatten(1, (2, KV_HEADS))
    assert torch.equal(kv[2, 1, :, 3], new[0])
    assert torch.equal(kv[1, 1, :, 0], new[1])
    assert kv.count_nonzero() == new.numel()


def test_a_step_looks_at_a_pictures_blocks_not_at_each_of_its_vectors():
    """The fault: Python work for thousands of vectors in each step that decodes one token."""

    class Counted(tuple[int, ...]):
        num_reads = 0

        def __getitem__(self, index: Any) -> Any:
            Counted.num_reads += 1
            return super().__getitem__(index)

    cross = torch.zeros(100, 1, 2, 64, KV_HEADS, HEAD_DIM)
    sources = tuple(CrossSource(Counted(range(26)), 1601, 1601, 0, 10**9) for _ in range(4))
    chunk = SequenceChunk(30, 1, [0] * 8, (), sources)
    ReferenceAttention(torch.zeros(1, 1, 2, BLOCK, KV_HEADS, HEAD_DIM), cross).begin([chunk])
    # Making a tensor of a sequence reads it a few times.
    assert Counted.num_reads < 4 * 26 * 8 < 4 * 1601


@pytest.mark.parametrize("seed", range(12))
def test_cross_attention_reads_its_own_items_only(seed: int):
    """The fault: a text token attends to padding, to another request's or a later picture."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    cross = torch.full((40, 2, 2, CROSS_BLOCK, KV_HEADS, HEAD_DIM), float("nan"))
    free = torch.randperm(40).tolist()
    layer, group = AttentionLayer(rng.randrange(2), SCALE), rng.choice((1, 2))
    chunks, cases = [], []
    for _ in range(rng.randint(1, 4)):
        computed, new = rng.randint(0, 9), rng.randint(1, 5)
        sources, vectors = [], []
        for _ in range(rng.randrange(3)):
            count = rng.randint(1, 7)
            block_ids = [free.pop() for _ in range(-(-count // CROSS_BLOCK))]
            data = torch.randn(count, 2, KV_HEADS, HEAD_DIM)
            for i in range(count):
                cross[block_ids[i // CROSS_BLOCK], layer.index, :, i % CROSS_BLOCK] = data[i]
            start = rng.randint(0, 10)
            end = rng.choice((start + rng.randint(1, 5), 10**9))
            sources.append(CrossSource(block_ids, count, rng.randint(1, count), start, end))
            vectors.append(data)
        chunks.append(SequenceChunk(computed, new, [0] * 4, (), tuple(sources)))
        if sources:
            cases.append((range(computed, computed + new), sources, torch.cat(vectors)))
    step = ReferenceAttention(torch.zeros(1, 1, 2, BLOCK, KV_HEADS, HEAD_DIM), cross).begin(chunks)
    if not cases:
        assert step.cross_rows is None
        return
    rows = step.cross_rows
    assert rows is not None
    q = torch.randn(len(rows.index), KV_HEADS * group, HEAD_DIM)
    seen = step.cross(layer, q)
    at = 0
    for tokens, sources, data in cases:
        for token in tokens:
            mask = torch.cat([
                (torch.arange(s.num_vectors) < s.num_visible) & (s.start <= token < s.end)
                for s in sources
            ])  # fmt: skip
            assert bool(rows.sees[at]) == bool(mask.any())
            if not mask.any():
                mask[:] = True
            want = dense(layer, q[at : at + 1], data[:, 0], data[:, 1], mask[None])
            torch.testing.assert_close(seen[at : at + 1], want, atol=1e-5, rtol=1e-5)
            at += 1
    assert at == len(q)
    first = [sum(c.num_new_tokens for c in chunks[:i]) for i in range(len(chunks))]
    readers = [
        row + i
        for row, chunk in zip(first, chunks, strict=True)
        if chunk.cross
        for i in range(chunk.num_new_tokens)
    ]
    assert rows.index.tolist() == readers
