"""Cross-attention of one step on Triton kernels: text rows over the K and V of media items.

Must not know: models, the scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from chiasm_worker.attention.base import AttentionLayer, CrossRows, SequenceChunk
from chiasm_worker.kernels.cross_attention.plan import Plan, Reader, Seen, Shape, plan, segments
from chiasm_worker.kernels.cross_attention.shape import plan_shape
from chiasm_worker.kernels.cross_attention.triton import cross_attention


class TritonCrossStep:
    """The rows of one packed batch whose requests read media items.

    Args:
        readers: (first row in the batch, chunk) of those requests.
        arena: [num_blocks, num_layers, 2, vectors of a block, num_kv_heads, head_dim].
    """

    def __init__(self, readers: Sequence[tuple[int, SequenceChunk]], arena: torch.Tensor) -> None:
        self._arena = arena
        self._readers = [_reader(chunk) for _, chunk in readers]
        self._table = self._block_table([chunk for _, chunk in readers])
        rows = [range(row, row + chunk.num_new_tokens) for row, chunk in readers]
        sees = [seen for reader in self._readers for seen in _sees(reader)]
        self.rows = CrossRows(
            torch.tensor([i for own in rows for i in own], device=arena.device),
            torch.tensor(sees, device=arena.device)[:, None],
        )
        self._plans: dict[Shape, tuple[Plan, list[torch.Tensor]]] = {}

    @classmethod
    def of(
        cls, chunks: Sequence[SequenceChunk], arena: torch.Tensor | None
    ) -> TritonCrossStep | None:
        """The cross-attention of a batch; None when no request reads media items."""
        readers, row = [], 0
        for chunk in chunks:
            if chunk.cross:
                readers.append((row, chunk))
            row += chunk.num_new_tokens
        return cls(readers, arena) if readers and arena is not None else None

    def attend(self, layer: AttentionLayer, q: torch.Tensor) -> torch.Tensor:
        """[num_rows, num_heads * head_dim] of q [num_rows, num_heads, head_dim]."""
        kv = self._arena[:, layer.index]
        shape = plan_shape(q.dtype, q.shape[2], q.shape[1] // kv.shape[3], q.device)
        if shape not in self._plans:
            made = plan(self._readers, shape)
            parts = (made.few, made.many, made.num_parts)
            on_device = [torch.from_numpy(part).to(self._arena.device) for part in parts]
            self._plans[shape] = (made, on_device)
        made, (few, many, num_parts) = self._plans[shape]
        out = cross_attention(
            q, kv, self._table, few, many, num_parts, max_parts=made.max_parts, scale=layer.scale
        )
        return out.flatten(1)

    def _block_table(self, chunks: Sequence[SequenceChunk]) -> torch.Tensor:
        items = [source.block_ids for chunk in chunks for source in chunk.cross]
        table = np.zeros((len(items), max(map(len, items))), np.int32)
        for row, ids in enumerate(items):
            table[row, : len(ids)] = ids
        return torch.from_numpy(table).to(self._arena.device)


def _reader(chunk: SequenceChunk) -> Reader:
    items = [Seen(s.num_vectors, s.num_visible, s.start, s.end) for s in chunk.cross]
    return Reader(chunk.num_computed_tokens, chunk.num_new_tokens, items)


def _sees(reader: Reader) -> list[bool]:
    """Whether each row lies in an item's range."""
    seen: list[bool] = []
    for start, end, _ in segments(reader):
        own = any(i.start <= start < i.end and i.num_visible for i in reader.items)
        seen += [own] * (end - start)
    return seen
