"""Attention in plain torch, on any device: the truth that other implementations are held to.

Requests that add one token (decoding) are batched: their blocks are gathered side by side and one
masked call serves them all. The query heads that share a K/V head are folded into the query's
length, so K and V are never repeated. Requests that add several tokens, or a span whose tokens see
one another, are computed one by one.
Slots that a request has not written hold what another one left there: they are never read, or
read as zero, because a mask does not hide NaN (0 x NaN is NaN).

Must not know: models, the scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from chiasm_contract.errors import InvariantError

from chiasm_worker.attention.base import AttentionLayer, CrossRows, SequenceChunk
from chiasm_worker.attention.heads import HeadNorm, Rotation, prepare
from chiasm_worker.attention.reference_cross import CrossStep
from chiasm_worker.attention.scores import attend, fold_and_attend


class ReferenceAttention:
    """The torch backend.

    Args:
        kv: [num_blocks, num_layers, 2, block_size, num_kv_heads, head_dim], a view of the arena.
        cross: the same shape for the layers and vectors of media items; None without such layers.
    """

    numerics = "torch-sdpa"

    def __init__(self, kv: torch.Tensor, cross: torch.Tensor | None = None) -> None:
        self._layers = [kv[:, i] for i in range(kv.shape[1])]
        self._block_size = kv.shape[3]
        self._cross = cross

    def begin(self, chunks: Sequence[SequenceChunk]) -> ReferenceStep:
        """Prepare the index tensors of one step."""
        cross = CrossStep.of(chunks, self._cross)
        return ReferenceStep(self._layers, self._block_size, chunks, cross)


class ReferenceStep:
    """One packed batch: decoding rows first gathered together, longer chunks one by one."""

    def __init__(
        self,
        layers: list[torch.Tensor],
        block_size: int,
        chunks: Sequence[SequenceChunk],
        cross: CrossStep | None,
    ) -> None:
        self._cross = cross
        self._layers = layers
        self._block_size = block_size
        self._device = layers[0].device
        rows, decode_rows = 0, []
        self._prefills: list[_Prefill] = []
        decodes = []
        block_ids, offsets = [], []
        for chunk in chunks:
            for i in range(chunk.num_computed_tokens, chunk.seq_len):
                block_ids.append(chunk.block_ids[i // block_size])
                offsets.append(i % block_size)
            if chunk.num_new_tokens == 1 and not chunk.bidirectional:
                decode_rows.append(rows)
                decodes.append(chunk)
            else:
                self._prefills.append(_Prefill(chunk, rows, block_size, self._device))
            rows += chunk.num_new_tokens
        self._write_index = (self._index(block_ids), self._index(offsets))
        self._decode = _Decode(decodes, block_size, self._device) if decodes else None
        self._decode_rows = self._index(decode_rows) if self._prefills and decodes else None

    @property
    def cross_rows(self) -> CrossRows | None:
        """The rows whose requests read media items; see AttentionStep."""
        return None if self._cross is None else self._cross.rows

    def cross(self, layer: AttentionLayer, q: torch.Tensor) -> torch.Tensor:
        """Attend to media items; see AttentionStep."""
        if self._cross is None:
            raise InvariantError("No request of this step reads media items; bug.")
        return self._cross.attend(layer, q)

    def forward(
        self,
        layer: AttentionLayer,
        heads: torch.Tensor,
        rotation: Rotation,
        norm: HeadNorm | None = None,
    ) -> torch.Tensor:
        """Normalise, rotate, write the new K and V, then attend; see AttentionStep."""
        arena = self._layers[layer.index]
        q, kv = prepare(heads, arena.shape[3], rotation, norm)
        # [num_blocks, 2, block_size, ...] -> [num_blocks, block_size, 2, ...]: one write for both
        arena.transpose(1, 2).index_put_(self._write_index, kv)
        if self._decode is None and len(self._prefills) == 1:
            return self._prefills[0].forward(layer, q, kv, arena)
        if self._decode is not None and not self._prefills:
            return self._decode.forward(layer, q, arena)
        out = q.new_empty(q.shape[0], q.shape[1] * q.shape[2])
        if self._decode is not None and self._decode_rows is not None:
            out[self._decode_rows] = self._decode.forward(layer, q[self._decode_rows], arena)
        for prefill in self._prefills:
            rows = slice(prefill.row, prefill.row + prefill.num_new_tokens)
            out[rows] = prefill.forward(layer, q[rows], kv[rows], arena)
        return out

    def _index(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)


class _Decode:
    """Requests with one new token each."""

    def __init__(self, chunks: list[SequenceChunk], block_size: int, device: torch.device) -> None:
        used = [-(-chunk.seq_len // block_size) for chunk in chunks]
        self._width = max(used)
        # Rows shorter than the longest read their own first block again and drop it.
        ids = [
            [*chunk.block_ids[:n], *[chunk.block_ids[0]] * (self._width - n)]
            for chunk, n in zip(chunks, used, strict=True)
        ]
        self._gather = torch.tensor(ids, dtype=torch.int64, device=device).view(-1)
        lens = torch.tensor([chunk.seq_len for chunk in chunks])
        # Slots behind each row's last token, counted over all rows.
        stale = torch.arange(self._width * block_size) >= lens[:, None]
        self._stale = stale.flatten().nonzero().flatten().to(device)
        self._lens = lens.to(device)
        self._block_size = block_size
        self._masks: dict[int, torch.Tensor] = {}

    def _mask(self, window: int) -> torch.Tensor:
        if window not in self._masks:
            keys = torch.arange(self._width * self._block_size, device=self._lens.device)
            mask = keys < self._lens[:, None]
            if window:
                mask &= keys >= (self._lens - window)[:, None]
            self._masks[window] = mask[:, None, None, :]
        return self._masks[window]

    def forward(self, layer: AttentionLayer, q: torch.Tensor, arena: torch.Tensor) -> torch.Tensor:
        batch, num_heads, head_dim = q.shape
        num_kv_heads = arena.shape[3]
        k, v = (self._read(arena[:, i]).view(batch, -1, num_kv_heads, head_dim) for i in (0, 1))
        out = attend(
            layer,
            q.view(batch, num_kv_heads, num_heads // num_kv_heads, head_dim),
            k.transpose(1, 2),
            v.transpose(1, 2),
            self._mask(layer.sliding_window),
        )
        return out.reshape(batch, num_heads * head_dim)

    def _read(self, arena: torch.Tensor) -> torch.Tensor:
        """K or V of all rows, [batch * width * block_size, num_kv_heads, head_dim]."""
        vectors = arena.index_select(0, self._gather).flatten(0, 1)
        return vectors.index_fill_(0, self._stale, 0.0)


class _Prefill:
    """One request with several new tokens."""

    def __init__(
        self, chunk: SequenceChunk, row: int, block_size: int, device: torch.device
    ) -> None:
        self.row = row
        self.num_new_tokens = chunk.num_new_tokens
        self._start = chunk.num_computed_tokens
        self._seq_len = chunk.seq_len
        num_blocks = -(-chunk.seq_len // block_size)
        self._gather = torch.tensor(list(chunk.block_ids[:num_blocks]), device=device)
        self._spans = chunk.bidirectional
        self._masks: dict[tuple[int, bool], torch.Tensor | None] = {}

    def _mask(self, layer: AttentionLayer, group: int) -> torch.Tensor | None:
        window, passes = layer.sliding_window, layer.spans_pass_window
        if (window, passes) not in self._masks:
            device = self._gather.device
            queries = torch.arange(self._start, self._seq_len, device=device)[:, None]
            keys = torch.arange(self._seq_len, device=device)
            mask = keys <= queries
            if passes and window:
                mask &= keys > queries - window
            for start, end in self._spans:
                mask |= (queries >= start) & (queries < end) & (keys >= start) & (keys < end)
            if window and not passes:
                mask &= keys > queries - window
            # A prompt that sees itself may be long, and its mask times the group large.
            self._masks[window, passes] = None if mask.all() else mask.repeat(group, 1)
        return self._masks[window, passes]

    def forward(
        self, layer: AttentionLayer, q: torch.Tensor, kv: torch.Tensor, arena: torch.Tensor
    ) -> torch.Tensor:
        num_heads, num_kv_heads = q.shape[1], arena.shape[3]
        if self._start == 0:
            k, v = kv[:, 0], kv[:, 1]
        else:
            k, v = (
                arena[:, i].index_select(0, self._gather).flatten(0, 1)[: self._seq_len]
                for i in (0, 1)
            )
        mask = self._mask(layer, num_heads // num_kv_heads)
        return fold_and_attend(layer, q, k, v, mask)
