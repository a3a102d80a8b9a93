"""Runs a step's new media through the encoder: in batches of equal shape, one output an item.

The encoder says which items go together. Whatever shares a batch, an item's output is the same up
to the rounding of larger matrix products, and greedy answers are equal (tests/worker/engine).

Must not know: how work is chosen, prompts, text.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from chiasm_worker.engine.arena import Arena
from chiasm_worker.kvcache.rebuild_cost import RebuildCosts
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.sched.budget import encoder_tokens
from chiasm_worker.sched.scheduler import EncodeJob

Tensors = Mapping[str, torch.Tensor]


class EncoderInputs(Protocol):
    """What the encoder takes of one media item, shared by those who hold it."""

    def __hash__(self) -> int:
        """Equal only to itself."""
        ...

    @property
    def num_bytes(self) -> int:
        """Bytes that whoever holds this keeps in memory."""
        ...

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """By the names under which the model takes them."""
        ...


class Encoding:
    """The encoder, where its outputs go, and totals since start."""

    def __init__(self, model: LoadedModel, arena: Arena, costs: RebuildCosts) -> None:
        self._encoder = model.encoder
        self._device = model.device
        self._arena = arena
        self._costs = costs
        self.num_items = 0
        self.num_batches = 0
        self.num_rows = 0
        self.num_padding_rows = 0
        self.seconds = 0.0

    def run(self, jobs: Sequence[EncodeJob], media: Mapping[str, Sequence[EncoderInputs]]) -> None:
        """Write the outputs of `jobs`; `media` has the inputs by request id and span."""
        batches: dict[object, list[tuple[EncodeJob, Tensors]]] = {}
        for job in jobs:
            inputs = media[job.request.request_id][job.span_index].tensors()
            shape = (job.handle.item.modality, self._encoder.batch_key(inputs))
            batches.setdefault(shape, []).append((job, inputs))
        for batch in batches.values():
            self._run([job for job, _ in batch], [inputs for _, inputs in batch])

    def _run(self, batch: Sequence[EncodeJob], inputs: Sequence[Tensors]) -> None:
        started = self._now()
        encoded = self._encoder.encode_batch(inputs)
        for job, features in zip(batch, encoded.features, strict=True):
            item = job.handle.item
            if features.shape[0] != item.num_tokens:
                raise ValueError(
                    f"The encoder made {features.shape[0]} rows of a {item.modality} that has "
                    f"{item.num_tokens} tokens; bug."
                )
            self._arena.write_media(job.handle.block_ids, features)
        seconds = self._now() - started
        num_tokens = sum(encoder_tokens(job.handle.item) for job in batch)
        self._costs.observe_encode(batch[0].handle.item.modality, num_tokens, seconds)
        self.num_items += len(batch)
        self.num_batches += 1
        self.num_rows += encoded.num_rows
        self.num_padding_rows += encoded.num_padding_rows
        self.seconds += seconds

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()
