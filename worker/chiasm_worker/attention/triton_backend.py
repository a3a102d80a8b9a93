"""Attention on Triton kernels: the backend of GPUs, and of the interpreter in tests.

One launch normalises and rotates q and k and writes the new K and V, quantised where the cache is.
Then requests that add one token go to the decode kernel, all others to the prefill kernel, each on
its own shape, never on the batch's: what is computed for a request has the same bits whoever
computes beside it.

Must not know: models, the scheduler. Importing it imports Triton; see choose.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from chiasm_contract.errors import InvariantError

from chiasm_worker.attention.base import AttentionLayer, CrossRows, SequenceChunk
from chiasm_worker.attention.heads import HeadNorm, Rotation
from chiasm_worker.attention.triton_cross import TritonCrossStep
from chiasm_worker.kernels.paged_decode.triton import paged_decode
from chiasm_worker.kernels.paged_prefill.plan import NewTokens, Rule, plan
from chiasm_worker.kernels.paged_prefill.shape import tile_shape
from chiasm_worker.kernels.paged_prefill.triton import paged_prefill
from chiasm_worker.kernels.rope_write.triton import rope_write

Integers = np.ndarray[Any, np.dtype[Any]]


class TritonAttention:
    """The Triton backend.

    Args:
        kv: [num_blocks, num_layers, 2, block_size, num_kv_heads, head_dim], a view of the arena;
            uint8 (e4m3 codes) and int8 are quantised.
        scales: [num_blocks, num_layers, 2, block_size, num_kv_heads] fp32 of a quantised cache.
        cross: as kv, for the layers and vectors of media items; None without such layers.
    """

    numerics = "triton"

    def __init__(
        self,
        kv: torch.Tensor,
        scales: torch.Tensor | None = None,
        cross: torch.Tensor | None = None,
    ) -> None:
        self._kv = kv
        self._scales = scales
        self._cross = cross

    def begin(self, chunks: Sequence[SequenceChunk]) -> TritonStep:
        """Prepare the index tensors of one step."""
        cross = TritonCrossStep.of(chunks, self._cross)
        return TritonStep(self._kv, self._scales, chunks, cross)


@dataclass(frozen=True, slots=True)
class _Planned:
    """A plan on the device."""

    tiles: torch.Tensor
    row_low: torch.Tensor
    row_high: torch.Tensor


class TritonStep:
    """One packed batch."""

    def __init__(
        self,
        kv: torch.Tensor,
        scales: torch.Tensor | None,
        chunks: Sequence[SequenceChunk],
        cross: TritonCrossStep | None,
    ) -> None:
        self._cross = cross
        self._kv = kv
        self._scales = scales
        self._chunks = chunks
        self._table = self._block_table()
        self._slots = self._slots_of(chunks)
        decodes = [i for i, chunk in enumerate(chunks) if _is_decode(chunk)]
        starts = np.cumsum([0, *(chunk.num_new_tokens for chunk in chunks)])
        self._all_decode = len(decodes) == len(chunks)
        self._decode_rows = self._on_device(starts[decodes], torch.int64) if decodes else None
        self._decode_table = self._table[decodes] if decodes else self._table
        self._decode_starts = self._on_device(np.arange(len(decodes) + 1))
        self._decode_lens = self._on_device(np.array([chunks[i].seq_len for i in decodes]))
        self._plans: dict[tuple[Rule, tuple[int, int]], _Planned] = {}

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
        arena = self._kv[:, layer.index]
        scales = None if self._scales is None else self._scales[:, layer.index]
        weights: dict[str, Any] = {}
        if norm is not None:
            weights = {"norms": (norm.q, norm.k), "eps": norm.eps, "offset": norm.offset}
        cos, sin = rotation.cos[:, 0], rotation.sin[:, 0]
        q, *_ = rope_write(heads, cos, sin, self._slots, arena, scales, **weights)
        if self._all_decode:
            return self._decode(layer, q, arena, scales).flatten(1)
        out = self._prefill(layer, q, arena, scales)
        if self._decode_rows is not None:
            out[self._decode_rows] = self._decode(layer, q[self._decode_rows], arena, scales)
        return out.flatten(1)

    def _decode(
        self, layer: AttentionLayer, q: torch.Tensor, kv: torch.Tensor, scales: torch.Tensor | None
    ) -> torch.Tensor:
        return paged_decode(
            q, kv, self._decode_table, self._decode_starts, self._decode_lens,
            max_queries=1, scale=layer.scale, scales=scales, window=layer.sliding_window,
            soft_cap=layer.soft_cap,
        )  # fmt: skip

    def _prefill(
        self, layer: AttentionLayer, q: torch.Tensor, kv: torch.Tensor, scales: torch.Tensor | None
    ) -> torch.Tensor:
        rule = Rule(layer.sliding_window, layer.spans_pass_window)
        shape = tile_shape(kv.dtype, q.shape[2], q.shape[1] // kv.shape[3], q.device)
        planned = self._planned(rule, shape)
        return paged_prefill(
            q, kv, self._table, planned.tiles, planned.row_low, planned.row_high, shape=shape,
            scale=layer.scale, scales=scales, soft_cap=layer.soft_cap,
        )  # fmt: skip

    def _planned(self, rule: Rule, shape: tuple[int, int]) -> _Planned:
        if (rule, shape) not in self._plans:
            new = [
                NewTokens(c.num_computed_tokens, c.num_new_tokens, c.bidirectional, _is_decode(c))
                for c in self._chunks
            ]
            made = plan(new, rule, *shape)
            self._plans[rule, shape] = _Planned(
                self._on_device(made.tiles),
                self._on_device(made.row_low),
                self._on_device(made.row_high),
            )
        return self._plans[rule, shape]

    def _block_table(self) -> torch.Tensor:
        size = self._kv.shape[3]
        num_used = [-(-chunk.seq_len // size) for chunk in self._chunks]
        table = np.zeros((len(self._chunks), max(num_used, default=1)), np.int32)
        for row, (chunk, used) in enumerate(zip(self._chunks, num_used, strict=True)):
            table[row, :used] = chunk.block_ids[:used]
        return self._on_device(table)

    def _slots_of(self, chunks: Sequence[SequenceChunk]) -> torch.Tensor:
        size, slots = self._kv.shape[3], []
        for chunk in chunks:
            tokens = np.arange(chunk.num_computed_tokens, chunk.seq_len)
            ids = np.asarray(chunk.block_ids, np.int64)
            slots.append(ids[tokens // size] * size + tokens % size)
        return self._on_device(np.concatenate(slots), torch.int64)

    def _on_device(self, values: Integers, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._kv.device, dtype)


def _is_decode(chunk: SequenceChunk) -> bool:
    return chunk.num_new_tokens == 1 and not chunk.bidirectional
