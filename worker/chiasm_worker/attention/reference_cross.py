"""Cross-attention of one step in plain torch: text rows over the K and V of media items.

Each request's items are gathered from their blocks side by side and read by all its rows in one
masked call. Only the vectors that were written are gathered: what lies behind an item's last one
in its last block is left out.

Must not know: models, the scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from chiasm_worker.attention.base import AttentionLayer, CrossRows, SequenceChunk
from chiasm_worker.attention.scores import fold_and_attend


class CrossStep:
    """The rows of one packed batch whose requests read media items.

    Args:
        chunks: (first row in the batch, chunk) of those requests.
        arena: [num_blocks, num_layers, 2, block_size, num_kv_heads, head_dim].
    """

    def __init__(self, chunks: Sequence[tuple[int, SequenceChunk]], arena: torch.Tensor) -> None:
        self._arena = arena
        self._readers = [_Reader(chunk, arena.shape[3], arena.device) for _, chunk in chunks]
        rows = [row + i for row, chunk in chunks for i in range(chunk.num_new_tokens)]
        self.rows = CrossRows(
            torch.tensor(rows, device=arena.device),
            torch.cat([reader.sees for reader in self._readers])[:, None],
        )

    @classmethod
    def of(cls, chunks: Sequence[SequenceChunk], arena: torch.Tensor | None) -> CrossStep | None:
        """The cross-attention of a batch; None when no request reads media items."""
        readers, row = [], 0
        for chunk in chunks:
            if chunk.cross:
                readers.append((row, chunk))
            row += chunk.num_new_tokens
        return cls(readers, arena) if readers and arena is not None else None

    def attend(self, layer: AttentionLayer, q: torch.Tensor) -> torch.Tensor:
        """[num_rows, num_heads * head_dim] of q [num_rows, num_heads, head_dim]."""
        parts = q.split([len(reader.sees) for reader in self._readers])
        arena = self._arena[:, layer.index]
        outputs = [r.attend(layer, q, arena) for r, q in zip(self._readers, parts, strict=True)]
        return torch.cat(outputs)


class _Reader:
    """One request's rows and the items that they read."""

    def __init__(self, chunk: SequenceChunk, block_size: int, device: torch.device) -> None:
        blocks, offsets = [], []
        for source in chunk.cross:
            vectors = torch.arange(source.num_vectors, device=device)
            ids = torch.tensor(source.block_ids, device=device)
            blocks.append(ids[vectors // block_size])
            offsets.append(vectors % block_size)
        self._blocks, self._offsets = torch.cat(blocks), torch.cat(offsets)
        tokens = torch.arange(chunk.num_computed_tokens, chunk.seq_len, device=device)[:, None]
        masks = []
        for source in chunk.cross:
            visible = torch.arange(source.num_vectors, device=device) < source.num_visible
            masks.append((tokens >= source.start) & (tokens < source.end) & visible)
        mask = torch.cat(masks, dim=1)
        # [num_rows]; a row that sees nothing attends to everything, see CrossSource.
        self.sees = mask.any(dim=1)
        self._mask = mask | ~self.sees[:, None]

    def attend(self, layer: AttentionLayer, q: torch.Tensor, arena: torch.Tensor) -> torch.Tensor:
        # [num_blocks, 2, block_size, ...] -> [num_vectors, 2, num_kv_heads, head_dim]
        k, v = arena[self._blocks, :, self._offsets].unbind(1)
        mask = self._mask.repeat(q.shape[1] // k.shape[1], 1)
        return fold_and_attend(layer, q, k, v, mask)
