"""The memory behind the block pool: one tensor of records, seen as K/V or as encoder output.

The layout of a record is drawn in kvcache/spec.py. All views share the same bytes; which of them
is right for a block is known to whoever holds the block.

Must not know: who holds which block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from chiasm_contract.block_record import HEADER_BYTES

from chiasm_worker.kvcache.spec import KVCacheSpec


class Arena:
    """`num_blocks` records on one device.

    Attributes:
        kv: [num_blocks, num_layers, 2, block_size, num_kv_heads, head_dim], a view.
        cross: the same for media items: [num_blocks, num_cross_layers, 2, vectors of a block, ..];
            None without cross-attention layers.
    """

    def __init__(
        self,
        spec: KVCacheSpec,
        num_blocks: int,
        dtype: torch.dtype,
        device: torch.device,
        num_cross_layers: int = 0,
    ) -> None:
        self._dtype = dtype
        self._kv_bytes = spec.kv_bytes
        # What was last copied in from outside; a second place for it only where a device is one.
        self._arrived = torch.empty(
            0 if device.type == "cpu" else spec.payload_bytes, dtype=torch.uint8
        )
        self._records = torch.zeros(
            (num_blocks, spec.record_bytes), dtype=torch.uint8, device=device
        )
        self._payload = self._records[:, HEADER_BYTES : HEADER_BYTES + spec.payload_bytes]
        shape = (spec.num_layers, 2, spec.block_size, spec.num_kv_heads, spec.head_dim)
        kv = self._payload[:, : spec.kv_bytes].view(dtype)
        self.kv = kv.unflatten(1, shape)
        self.cross: torch.Tensor | None = None
        self._cross_bytes = 0
        if num_cross_layers:
            size = spec.cross_vectors(num_cross_layers)
            shape = (num_cross_layers, 2, size, spec.num_kv_heads, spec.head_dim)
            self._cross_bytes = math.prod(shape) * spec.dtype_bytes
            self.cross = self._payload[:, : self._cross_bytes].view(dtype).unflatten(1, shape)

    def write_media(self, block_ids: Sequence[int], features: torch.Tensor) -> None:
        """Store an encoder output [num_tokens, width] in the payloads of its blocks.

        With cross-attention layers a row is a vector's K and V for all of them, and lies in `cross`
        where attention reads it. What is left of the last block becomes zero.
        """
        if self.cross is not None:
            self._write_cross(self.cross, block_ids, features)
            return
        data = features.to(self._dtype).contiguous().view(-1).view(torch.uint8)
        size = self._payload.shape[1]
        for i, block_id in enumerate(block_ids):
            part = data[i * size : (i + 1) * size]
            self._payload[block_id, : part.numel()] = part
            self._payload[block_id, part.numel() :] = 0

    def _write_cross(
        self, cross: torch.Tensor, block_ids: Sequence[int], features: torch.Tensor
    ) -> None:
        _, num_layers, _, size, num_heads, head_dim = cross.shape
        # -> [num_layers, 2, num_vectors, num_kv_heads, head_dim]
        vectors = features.view(-1, num_layers, 2, num_heads, head_dim).permute(1, 2, 0, 3, 4)
        for block_id, part in zip(block_ids, vectors.split(size, dim=2), strict=True):
            if part.shape[2] < size or self._cross_bytes < self._payload.shape[1]:
                self._payload[block_id] = 0
            cross[block_id, :, :, : part.shape[2]] = part

    def read_media(
        self, block_ids: Sequence[int], first: int, length: int, width: int
    ) -> torch.Tensor:
        """Rows first..first+length-1 of the encoder output [.., width] stored in these blocks.

        A copy of them, and of what else lies in the blocks that hold them.
        """
        size, row_bytes = self._payload.shape[1], width * self._dtype.itemsize
        start, end = first * row_bytes, (first + length) * row_bytes
        first_block = start // size
        index = torch.tensor(block_ids[first_block : -(-end // size)], device=self._payload.device)
        data = self._payload.index_select(0, index).view(-1)
        rows = data[start - first_block * size : end - first_block * size]
        return rows.view(self._dtype).view(length, width)

    def read_payload(self, block_id: int, into: memoryview, *, is_kv: bool) -> None:
        """Copy a block's payload; where it is K/V, what lies behind the vectors becomes zero."""
        target = torch.frombuffer(into, dtype=torch.uint8)
        target.copy_(self._payload[block_id])
        if is_kv:
            target[self._kv_bytes :] = 0

    def write_payload(self, block_id: int, data: memoryview) -> memoryview:
        """Copy a payload into a block.

        Returns: the bytes as they arrived, in memory that nobody else writes; valid until the next
        call.
        """
        source = torch.frombuffer(data, dtype=torch.uint8)
        if self._payload.is_cpu:
            row = self._payload[block_id]
            row.copy_(source)
            return row.numpy().data
        self._arrived.copy_(source)
        self._payload[block_id].copy_(self._arrived)
        return self._arrived.numpy().data
