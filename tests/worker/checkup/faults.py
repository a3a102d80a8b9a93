"""Ways to break a running engine, each as one of the bottlenecks would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from chiasm_worker.attention.base import AttentionBackend, AttentionLayer, SequenceChunk
from chiasm_worker.attention.heads import HeadNorm, Rotation, prepare
from chiasm_worker.engine import runner
from chiasm_worker.engine.engine import Engine

Plant = Callable[[Engine, pytest.MonkeyPatch], None]


class Backend:
    """Attention as it is, but for what a subclass does to it."""

    def __init__(self, backend: AttentionBackend) -> None:
        self._backend = backend
        self.numerics = backend.numerics

    def begin(self, chunks: Sequence[SequenceChunk]) -> Any:
        return self._backend.begin(chunks)


class ForgetsItsBeginning(Backend):
    """Single tokens see their sequence from its second block on: two lengths that do not meet."""

    def begin(self, chunks: Sequence[SequenceChunk]) -> Any:
        size = self._backend._block_size  # type: ignore[attr-defined]
        return super().begin([self._shorter(chunk, size) for chunk in chunks])

    @staticmethod
    def _shorter(chunk: SequenceChunk, size: int) -> SequenceChunk:
        if chunk.num_new_tokens > 1 or chunk.num_computed_tokens < size:
            return chunk
        fewer = chunk.num_computed_tokens - size
        return replace(chunk, num_computed_tokens=fewer, block_ids=chunk.block_ids[1:])


class Rounds(Backend):
    """K and V lose their last bits on their way into the cache; shapes stay as they are."""

    class _Step:
        def __init__(self, step: Any, num_kv_heads: int) -> None:
            self._step = step
            self._num_kv_heads = num_kv_heads
            self.cross_rows = step.cross_rows

        def forward(
            self,
            layer: AttentionLayer,
            heads: torch.Tensor,
            rotation: Rotation,
            norm: HeadNorm | None = None,
        ) -> torch.Tensor:
            q, kv = prepare(heads, self._num_kv_heads, rotation, norm)
            heads = torch.cat((q, ((kv * 16).round() / 16).flatten(1, 2)), dim=1)
            out: torch.Tensor = self._step.forward(layer, heads, Rotation.none(heads))
            return out

    def __init__(self, backend: AttentionBackend, num_kv_heads: int) -> None:
        super().__init__(backend)
        self._num_kv_heads = num_kv_heads

    def begin(self, chunks: Sequence[SequenceChunk]) -> Any:
        return self._Step(super().begin(chunks), self._num_kv_heads)


def wrong_lengths(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine.runner, "attention", ForgetsItsBeginning(engine.runner.attention))


def surplus_block(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    """Attention is given a block more than the table has; answers stay right."""
    right = runner._sequence_chunk

    def padded(chunk: Any) -> SequenceChunk:
        made = right(chunk)
        return replace(made, block_ids=[*made.block_ids, 0])

    patch.setattr(runner, "_sequence_chunk", padded)


def rounded_cache(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    rounds = Rounds(engine.runner.attention, engine.spec.num_kv_heads)
    patch.setattr(engine.runner, "attention", rounds)


def wrong_positions(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    """What follows the prompt begins one position too late."""
    right = runner._positions

    def shifted(chunk: Any) -> np.ndarray:
        behind = chunk.start >= len(chunk.request.prompt.token_ids)
        return right(chunk) + int(behind)

    patch.setattr(runner, "_positions", shifted)


def leak_at_the_end(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    """Each request that ends leaves a reader on its last block."""
    give_back = engine.scheduler._give_back

    def leaky(request: Any, **arguments: Any) -> None:
        engine.pool.acquire(request.table.block_ids[-1:])
        give_back(request, **arguments)

    patch.setattr(engine.scheduler, "_give_back", leaky)


def orphaned_pictures(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    """Encoder outputs are never given back when their prompt has read them."""
    patch.setattr(engine.media_cache, "release", lambda _: None)


BOTTLENECKS: dict[str, tuple[str, Plant]] = {
    "attention that forgets the beginning": ("attention", wrong_lengths),
    "a block too many for attention": ("attention", surplus_block),
    "blocks that outlive their requests": ("pool", leak_at_the_end),
    "pictures that outlive their prompts": ("pool", orphaned_pictures),
    "positions of its own": ("drift", wrong_positions),
    "a cache that rounds": ("drift", rounded_cache),
}
