"""Runs one ScheduledBatch on the model: encoder outputs first, then the packed decoder step.

Must not know: how work is chosen, when requests end, text.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

import numpy as np
import torch

from chiasm_worker.attention.base import AttentionBackend, CrossSource, SequenceChunk
from chiasm_worker.engine.arena import Arena
from chiasm_worker.engine.encoding import EncoderInputs, Encoding
from chiasm_worker.engine.sampler import RowSampler, SampledToken, sample
from chiasm_worker.engine.watching import StepGiven, StepWatcher
from chiasm_worker.kvcache.media_cache import MediaHandle
from chiasm_worker.kvcache.rebuild_cost import RebuildCosts
from chiasm_worker.media_identity import Compression, CrossSpan
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.models.compressor import COMPRESSORS, TokenGrid, Window
from chiasm_worker.models.decoder import MediaRows
from chiasm_worker.request import Request
from chiasm_worker.sched.batch import Chunk, ScheduledBatch


class Runner:
    """The model, its arena and its attention."""

    def __init__(
        self, model: LoadedModel, arena: Arena, attention: AttentionBackend, costs: RebuildCosts
    ) -> None:
        self._model = model
        self.encoding = Encoding(model, arena, costs)
        self._arena = arena
        self.attention = attention
        # Notes what steps are given, while somebody looks; None: nobody does.
        self.watcher: StepWatcher | None = None
        # Of the last batch: when the encoder was done, and the decoder.
        self.times = (0.0, 0.0)
        # What is left of pictures that are read in several chunks, as long as somebody holds them.
        self._compressed: WeakKeyDictionary[MediaHandle, dict[Compression, torch.Tensor]] = (
            WeakKeyDictionary()
        )

    def use(self, model: LoadedModel) -> None:
        """Compute with this model from now on."""
        if model is not self._model:
            self._model = model
            self.encoding.use(model)

    @torch.inference_mode()
    def run(
        self,
        batch: ScheduledBatch,
        samplers: Mapping[str, RowSampler],
        media: Mapping[str, Sequence[EncoderInputs]],
    ) -> dict[str, SampledToken]:
        """Compute a batch and choose a token for each request whose chunk samples.

        Args:
            batch: what to compute.
            samplers: request id -> how it chooses, of those whose chunk samples.
            media: request id -> encoder inputs of its media spans, of those with an item to encode.
        """
        self.encoding.run(batch.encodes, media)
        encoded = time.perf_counter()
        device = self._model.device
        token_ids = [t for c in batch.chunks for t in c.request.token_ids[c.start : c.end]]
        positions = np.concatenate([_positions(chunk) for chunk in batch.chunks], axis=1)
        given = [_sequence_chunk(chunk) for chunk in batch.chunks]
        step = self.attention.begin(given)
        rows = self._media_rows(batch.chunks)
        if self.watcher is not None:
            step = self.watcher.step(StepGiven(batch.chunks, given, positions, rows), step)
        hidden = self._model.decoder.forward(
            torch.tensor(token_ids, device=device),
            torch.from_numpy(positions).to(device),
            step,
            rows,
        )
        self.times = (encoded, time.perf_counter())
        return self._sample(batch.chunks, hidden, samplers)

    def _sample(
        self, chunks: Sequence[Chunk], hidden: torch.Tensor, samplers: Mapping[str, RowSampler]
    ) -> dict[str, SampledToken]:
        rows, ids, end = [], [], 0
        for chunk in chunks:
            end += chunk.num_tokens
            if chunk.samples:
                rows.append(end - 1)
                ids.append(chunk.request.request_id)
        if not ids:
            return {}
        if len(rows) < hidden.shape[0]:
            hidden = hidden[torch.tensor(rows, device=hidden.device)]
        logits = self._model.decoder.logits(hidden)
        if self.watcher is not None:
            self.watcher.logits(ids, logits)
        sampled = sample(logits, [samplers[request_id] for request_id in ids])
        return dict(zip(ids, sampled, strict=True))

    def _media_rows(self, chunks: Sequence[Chunk]) -> MediaRows | None:
        rows: list[int] = []
        features: list[torch.Tensor] = []
        row = 0
        for chunk in chunks:
            request = chunk.request
            for index in request.spans_in(chunk.start, chunk.end):
                pieces = list(request.prompt.spans[index].pieces(chunk.start, chunk.end))
                for token, _, length in pieces:
                    rows += range(row + token - chunk.start, row + token - chunk.start + length)
                if pieces:  # else only what stands between the item's rows
                    num_rows = sum(length for _, _, length in pieces)
                    features.append(self._read(request, index, pieces[0][1], num_rows))
            row += chunk.num_tokens
        if not rows:
            return None
        levels = torch.cat(features).split(self._model.decoder.spec.hidden_size, dim=1)
        index_tensor = torch.tensor(rows, device=self._model.device)
        return MediaRows(index_tensor, levels[0], tuple(levels[1:]))

    def _read(self, request: Request, span_index: int, first: int, length: int) -> torch.Tensor:
        """A span's rows first..first+length-1, after its own compression."""
        handle = request.media[span_index]
        how = request.prompt.spans[span_index].item.compression
        if how is None:
            return self._arena.read_media(handle.block_ids, first, length, self._model.media_width)
        compressed = self._compressed.setdefault(handle, {})
        if how not in compressed:
            compressed[how] = self._compress(handle, how)
        return compressed[how][first : first + length]

    def _compress(self, handle: MediaHandle, how: Compression) -> torch.Tensor:
        num_rows = handle.item.num_tokens
        output = self._arena.read_media(handle.block_ids, 0, num_rows, self._model.media_width)
        compressor = COMPRESSORS[how.compressor]
        return compressor.compress(output, TokenGrid(*how.token_grid), Window(*how.window))


def _sequence_chunk(chunk: Chunk) -> SequenceChunk:
    """What attention needs to know of a chunk."""
    request = chunk.request
    spans = request.prompt.bidirectional
    touched = tuple(span for span in spans if span[0] < chunk.end and span[1] > chunk.start)
    return SequenceChunk(
        chunk.start, chunk.num_tokens, request.table.block_ids, touched, _cross_sources(chunk)
    )


def _cross_sources(chunk: Chunk) -> tuple[CrossSource, ...]:
    """The media items that a chunk reads by cross-attention."""
    request, sources = chunk.request, []
    if not request.prompt.cross:
        return ()
    for index in request.media_in(chunk.start, chunk.end):
        span, handle = request.prompt.media[index], request.media[index]
        if isinstance(span, CrossSpan):
            vectors = (handle.item.num_tokens, span.num_visible)
            sources.append(CrossSource(handle.block_ids, *vectors, span.start, span.needed_until))
    return tuple(sources)


def _positions(chunk: Chunk) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Position ids [num_axes, num_tokens] of a chunk that may reach beyond the prompt."""
    prompt = chunk.request.prompt
    num_prompt = len(prompt.token_ids)
    known = prompt.positions[:, chunk.start : chunk.end]
    if chunk.end <= num_prompt:
        return known
    first = max(chunk.start, num_prompt)
    beyond = np.arange(first, chunk.end, dtype=np.int64) - num_prompt + prompt.next_position
    return np.concatenate((known, np.broadcast_to(beyond, (known.shape[0], len(beyond)))), axis=1)
