"""Which tokens each token really sees, asked of the attention that serves.

Queries of zero weigh all keys alike, so what attention makes of a token is the mean of the V that
it sees. Each token's V is a row of +1 and -1 of its own: a key too many, one too few, or another
one moves that mean by at least 1 / (keys + 1) somewhere, and rounding by far less. Sequences are
those that meet in one batch: single tokens of different lengths, a chunk behind cached tokens, a
whole prompt, a span whose tokens see one another.

It takes a few blocks of the pool for the time of its two calls, like a request of that many tokens,
and gives them back; it evicts a few cached blocks at most.

Must not know: models beyond their attention, requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from chiasm_worker.attention.base import AttentionBackend, AttentionLayer, SequenceChunk
from chiasm_worker.attention.heads import Rotation
from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.models.decoder_spec import DecoderSpec
from chiasm_worker.models.mask import MaskRule

# Of the pool, so that what others have cached mostly stays.
_SHARE_OF_POOL = 8


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Tokens computed before, tokens computed now, and spans among the latter."""

    num_computed: int
    num_new: int
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def length(self) -> int:
        return self.num_computed + self.num_new


@torch.inference_mode()
def visibility_faults(
    backend: AttentionBackend,
    pool: BlockPool,
    spec: DecoderSpec,
    block_size: int,
    like: torch.Tensor,
) -> list[str] | None:
    """In what tokens see others than they should; None when the pool has no room to ask.

    Args:
        like: a tensor of the type and on the device that is computed with.
    """
    sequences = _sequences(block_size, spec)
    sizes = [-(-each.length // block_size) for each in sequences]
    if sum(sizes) * _SHARE_OF_POOL > pool.num_allocatable:
        return None
    block_ids = pool.allocate(sum(sizes))
    if block_ids is None:
        return None
    try:
        tables, rest = [], block_ids
        for size in sizes:
            tables.append(rest[:size])
            rest = rest[size:]
        return [
            fault
            for layer in _layers(spec)
            for fault in _layer_faults(backend, layer, spec, sequences, tables, like)
        ]
    except (RuntimeError, ValueError, IndexError) as error:  # what shapes that do not meet raise
        return [f"it fails on sequences of {[each.length for each in sequences]} tokens: {error}"]
    finally:
        pool.release(block_ids)


def _sequences(size: int, spec: DecoderSpec) -> list[_Sequence]:
    whole = size + 3
    together = ((1, whole - 1),) if spec.mask in (MaskRule.MEDIA, MaskRule.PROMPT) else ()
    return [
        _Sequence(2 * size + 2, 1),  # decoding, its last block nearly empty
        _Sequence(4, 1),  # decoding beside it, far shorter
        _Sequence(size - 1, 1),  # decoding, its last block full
        _Sequence(size + 1, size),  # a chunk behind cached tokens, off the blocks' borders
        _Sequence(0, whole, together),  # a whole prompt
    ]


def _layers(spec: DecoderSpec) -> Iterator[AttentionLayer]:
    """The first layer of each window that tokens look back through."""
    seen = set()
    for index, window in enumerate(spec.sliding_windows):
        if index not in spec.cross_layers and window not in seen:
            seen.add(window)
            yield spec.attention_layer(index)


def _layer_faults(
    backend: AttentionBackend,
    layer: AttentionLayer,
    spec: DecoderSpec,
    sequences: Sequence[_Sequence],
    tables: Sequence[Sequence[int]],
    like: torch.Tensor,
) -> Iterator[str]:
    before = [
        SequenceChunk(0, each.num_computed, table)
        for each, table in zip(sequences, tables, strict=True)
        if each.num_computed
    ]
    now = [
        SequenceChunk(each.num_computed, each.num_new, table, each.spans)
        for each, table in zip(sequences, tables, strict=True)
    ]
    generator = torch.Generator().manual_seed(0)
    codes = [
        torch.randint(0, 2, (each.length, spec.num_kv_heads, spec.head_dim), generator=generator)
        * 2.0
        - 1.0
        for each in sequences
    ]
    for chunks in (before, now):
        kept = [
            c
            for each, c in zip(sequences, codes, strict=True)
            if chunks is now or each.num_computed
        ]
        parts = [
            code[chunk.num_computed_tokens : chunk.seq_len]
            for chunk, code in zip(chunks, kept, strict=True)
        ]
        v = torch.cat(parts).to(like.device, like.dtype)
        q = v.new_zeros(v.shape[0], spec.num_heads, spec.head_dim)
        heads = torch.cat((q, v, v), dim=1)
        out = backend.begin(chunks).forward(layer, heads, Rotation.none(heads))
        yield from _compared(layer, spec, chunks, kept, out.to("cpu", torch.float64))


def _compared(
    layer: AttentionLayer,
    spec: DecoderSpec,
    chunks: Sequence[SequenceChunk],
    codes: Sequence[torch.Tensor],
    out: torch.Tensor,
) -> Iterator[str]:
    """The first token of each sequence that sees other tokens than it should."""
    num_rows = sum(chunk.num_new_tokens for chunk in chunks)
    if out.shape[0] != num_rows:
        yield f"attention made {out.shape[0]} rows of {num_rows} tokens"
        return
    group, row = spec.num_heads // spec.num_kv_heads, 0
    for chunk, code in zip(chunks, codes, strict=True):
        visible = _visible(layer, chunk).double()
        counts = visible.sum(dim=1)
        means = (visible @ code[: chunk.seq_len].double().flatten(1)) / counts[:, None]
        wanted = means.view(-1, *code.shape[1:]).repeat_interleave(group, dim=1).flatten(1)
        got = out[row : row + chunk.num_new_tokens]
        wrong = ~((got - wanted).abs() < 0.5 / (counts[:, None] + 1)).all(dim=1)
        row += chunk.num_new_tokens
        if bool(wrong.any()):
            first = int(wrong.int().argmax())
            yield (
                f"token {chunk.num_computed_tokens + first} of a sequence of {chunk.seq_len}, "
                f"{chunk.num_new_tokens} of them new, does not see the {int(counts[first])} tokens "
                "that it should"
            )


def _visible(layer: AttentionLayer, chunk: SequenceChunk) -> torch.Tensor:
    """[num_new_tokens, seq_len] bool: which token each new one sees."""
    keys = torch.arange(chunk.seq_len)[None, :]
    queries = torch.arange(chunk.num_computed_tokens, chunk.seq_len)[:, None]
    near = queries - keys < (layer.sliding_window or chunk.seq_len + 1)
    together = torch.zeros_like(near)
    for start, end in chunk.bidirectional:
        together |= (queries >= start) & (queries < end) & (keys >= start) & (keys < end)
    if layer.spans_pass_window:
        return ((keys <= queries) & near) | together
    return ((keys <= queries) | together) & near
