"""Looks on while the engine computes: compares each step with its plan, keeps the sample's logits.

What it keeps is bounded: numbers of steps, the first few sentences, and the rows of logits that are
asked for. A fault of its own is kept as such and never reaches the engine.

Must not know: what is made of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from chiasm_worker.attention.base import AttentionLayer, AttentionStep, CrossRows, SequenceChunk
from chiasm_worker.attention.heads import HeadNorm, Rotation
from chiasm_worker.checkup.drift import STEPS, Logits
from chiasm_worker.checkup.shapes import (
    Given,
    LayerRows,
    Planned,
    layer_faults,
    planned_positions,
    position_fault,
    step_faults,
)
from chiasm_worker.engine.watching import StepGiven
from chiasm_worker.request import Request
from chiasm_worker.sched.batch import Chunk

_MAX_SENTENCES = 3
_MAX_KNOWN = 4096


@dataclass(slots=True)
class Noted:
    """Steps in which something was wrong, and what was wrong in the first of them."""

    num_steps: int = 0
    sentences: list[str] = field(default_factory=list)

    def add(self, sentences: Sequence[str]) -> None:
        """One more step's faults."""
        if sentences:
            self.num_steps += 1
            self.sentences += sentences[: _MAX_SENTENCES - len(self.sentences)]


class Watcher:
    """Watches every step of an engine; use from its thread.

    Args:
        name: of the sample: its requests' ids begin with it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.num_steps = 0
        self.num_tokens = 0
        self.num_chunks = 0
        self.shapes = Noted()
        self.positions = Noted()
        self.failure: str | None = None
        # The sample's requests by id, and (request id, step) -> logits.
        self.requests: dict[str, Request] = {}
        self.rows: dict[tuple[str, int], Logits] = {}
        self._ends: dict[str, tuple[int, int]] = {}
        self._last: _WatchedStep | None = None

    def step(self, given: StepGiven, attention: AttentionStep) -> AttentionStep:
        """See StepWatcher."""
        try:
            self._close()
            self._compare(given)
            num_tokens = sum(chunk.num_tokens for chunk in given.planned)
            self._last = _WatchedStep(attention, num_tokens)
        except Exception as error:
            # Requests must not fail because somebody looks.
            self.failure = f"{type(error).__name__}: {error}"
            return attention
        return self._last

    def logits(self, request_ids: Sequence[str], logits: torch.Tensor) -> None:
        """See StepWatcher."""
        for row, request_id in enumerate(request_ids):
            request = self.requests.get(request_id)
            if request is None:
                continue
            number = request.num_output_tokens + 1
            if number in STEPS and row < logits.shape[0]:
                key = (request_id, number)
                self.rows[key] = logits[row].to("cpu", torch.float64).numpy()

    def end(self) -> None:
        """No further steps are watched."""
        try:
            self._close()
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"

    def _close(self) -> None:
        """The last step is over: its layers can be judged."""
        last, self._last = self._last, None
        if last is not None:
            self.shapes.add(list(layer_faults(last.rows, last.num_tokens)))

    def _compare(self, given: StepGiven) -> None:
        self.num_steps += 1
        self.num_chunks += len(given.planned)
        self.num_tokens += sum(chunk.num_tokens for chunk in given.planned)
        for chunk in given.planned:
            if chunk.request.request_id.startswith(self._name):
                self.requests[chunk.request.request_id] = chunk.request
        faults = step_faults(
            [self._planned(chunk) for chunk in given.planned],
            [_given(chunk) for chunk in given.given],
            given.positions.shape[1],
            [] if given.media is None else given.media.rows.tolist(),
            list(_media_rows(given.planned)),
        )
        self.shapes.add(list(faults))
        planned = [planned_positions(c.request.prompt, c.start, c.end) for c in given.planned]
        fault = position_fault(given.positions, np.concatenate(planned, axis=1))
        self.positions.add([] if fault is None else [fault])

    def _planned(self, chunk: Chunk) -> Planned:
        request = chunk.request
        end, num_preemptions = self._ends.get(request.request_id, (0, -1))
        if len(self._ends) < _MAX_KNOWN or request.request_id in self._ends:
            self._ends[request.request_id] = (chunk.end, request.num_preemptions)
        return Planned(
            start=chunk.start,
            num_tokens=chunk.num_tokens,
            num_known=len(request.token_ids),
            block_size=request.table.block_size,
            num_blocks=len(request.table.block_ids),
            spans=tuple(
                (first, last)
                for first, last in request.prompt.bidirectional
                if max(first, chunk.start) < min(last, chunk.end)
            ),
            cross=tuple(_planned_cross(chunk)),
            follows=end if num_preemptions == request.num_preemptions else None,
        )


def _planned_cross(chunk: Chunk) -> Iterator[tuple[int, int, int, int]]:
    for span in chunk.request.prompt.cross:
        if span.needed_from < chunk.end and chunk.start < span.needed_until:
            num_vectors = span.item.num_encoder_tokens
            yield num_vectors, span.num_visible, span.start, span.needed_until


def _given(chunk: SequenceChunk) -> Given:
    return Given(
        num_computed=chunk.num_computed_tokens,
        num_new=chunk.num_new_tokens,
        block_ids=tuple(chunk.block_ids),
        spans=tuple((start, end) for start, end in chunk.bidirectional),
        cross=tuple((c.num_vectors, c.num_visible, c.start, c.end) for c in chunk.cross),
    )


def _media_rows(chunks: Sequence[Chunk]) -> Iterator[int]:
    """The rows of a packed batch whose tokens stand for a row of an encoder's output."""
    row = 0
    for chunk in chunks:
        for span in chunk.request.prompt.spans:
            for offset, length in span.runs:
                first = max(chunk.start, span.start + offset)
                last = min(chunk.end, span.start + offset + length)
                yield from range(row + first - chunk.start, row + last - chunk.start)
        row += chunk.num_tokens


class _WatchedStep:
    """Attention as it is, which notes how many rows its layers take and make."""

    def __init__(self, attention: AttentionStep, num_tokens: int) -> None:
        self._attention = attention
        self.num_tokens = num_tokens
        self.rows: list[LayerRows] = []

    @property
    def cross_rows(self) -> CrossRows | None:
        """See AttentionStep."""
        return self._attention.cross_rows

    def forward(
        self,
        layer: AttentionLayer,
        heads: torch.Tensor,
        rotation: Rotation,
        norm: HeadNorm | None = None,
    ) -> torch.Tensor:
        """See AttentionStep."""
        out = self._attention.forward(layer, heads, rotation, norm)
        self.rows.append(LayerRows(heads.shape[0], out.shape[0]))
        return out

    def cross(self, layer: AttentionLayer, q: torch.Tensor) -> torch.Tensor:
        """See AttentionStep."""
        return self._attention.cross(layer, q)
