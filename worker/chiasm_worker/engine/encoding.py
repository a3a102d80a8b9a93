"""Runs a step's new media through the encoder: in batches of equal shape, one output an item.

The encoder says which items go together. Whatever shares a batch, an item's output is the same up
to the rounding of larger matrix products, and greedy answers are equal (tests/worker/engine).

Must not know: how work is chosen, prompts, text.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from chiasm_contract.logs import error_fields
from chiasm_contract.timeline import Encode

from chiasm_worker.engine.arena import Arena
from chiasm_worker.kvcache.rebuild_cost import RebuildCosts
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.sched.batch import EncodeJob

logger = logging.getLogger(__name__)

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


class EncodingError(Exception):
    """One item that the encoder failed on, by itself; the cause says why."""

    def __init__(self, job: EncodeJob) -> None:
        super().__init__(
            f"The encoder failed on media item {job.span_index} of {job.request.request_id}."
        )
        self.job = job


class Encoding:
    """The encoder, where its outputs go, and totals since start."""

    def __init__(self, model: LoadedModel, arena: Arena, costs: RebuildCosts) -> None:
        self.use(model)
        self._arena = arena
        self._costs = costs
        # Of the last run.
        self.calls: list[Encode] = []
        self.num_items = 0
        self.num_batches = 0
        self.num_rows = 0
        self.num_padding_rows = 0
        self.seconds = 0.0

    def use(self, model: LoadedModel) -> None:
        """Encode with this model from now on."""
        self._encoder = model.encoder
        self._device = model.device

    def run(self, jobs: Sequence[EncodeJob], media: Mapping[str, Sequence[EncoderInputs]]) -> None:
        """Write the outputs of `jobs`; `media` has the inputs by request id and span.

        Raises: EncodingError naming one that the encoder fails on; any of them may be unwritten.
        """
        self.calls = []
        batches: dict[object, list[tuple[EncodeJob, Tensors]]] = {}
        for job in jobs:
            try:
                inputs = media[job.request.request_id][job.span_index].tensors()
            except Exception as error:  # where they are made from a file again
                raise EncodingError(job) from error
            shape = (job.handle.item.modality, self._encoder.batch_key(inputs))
            batches.setdefault(shape, []).append((job, inputs))
        for batch in batches.values():
            self._run_or_name([job for job, _ in batch], [inputs for _, inputs in batch])

    def _run_or_name(self, batch: Sequence[EncodeJob], inputs: Sequence[Tensors]) -> None:
        """Run a batch; if it fails, one by one, so that only what fails by itself is to blame."""
        try:
            self._run(batch, inputs)
        except Exception as error:
            if len(batch) == 1:
                raise EncodingError(batch[0]) from error
            fields = {
                "choice_ids": [job.request.request_id for job in batch],
                **error_fields(error),
            }
            logger.warning("Media items are encoded one by one", extra={"fields": fields})
            for job, each in zip(batch, inputs, strict=True):
                self._run_or_name([job], [each])

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
        ended = self._now()
        seconds = ended - started
        num_tokens = sum(job.handle.item.num_encoder_tokens for job in batch)
        modality = batch[0].handle.item.modality
        self._costs.observe_encode(modality, num_tokens, seconds)
        choice_ids = tuple(job.request.request_id for job in batch)
        self.calls.append(Encode(choice_ids, modality, started, ended, num_tokens))
        self.num_items += len(batch)
        self.num_batches += 1
        self.num_rows += encoded.num_rows
        self.num_padding_rows += encoded.num_padding_rows
        self.seconds += seconds

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()
