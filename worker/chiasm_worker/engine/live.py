"""One choice of a request as the engine runs it: its model, its answer, how it samples.

Must not know: the scheduler, HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from chiasm_contract import logs

from chiasm_worker.engine.answer import Answer, end_token_ids
from chiasm_worker.engine.encoding import EncoderInputs
from chiasm_worker.engine.epoch import Epoch
from chiasm_worker.engine.sampler import RowSampler
from chiasm_worker.request import Request


@dataclass(slots=True)
class Live:
    """A choice that has not ended; `known_as` is how the log names its request."""

    request: Request
    epoch: Epoch
    inputs: Sequence[EncoderInputs]
    answer: Answer
    sampler: RowSampler
    known_as: logs.Fields = field(default_factory=logs.bound)

    @classmethod
    def of(cls, request: Request, epoch: Epoch, inputs: Sequence[EncoderInputs]) -> Live:
        """A choice before its first token."""
        params, eos_token_ids = request.params, epoch.model.eos_token_ids
        answer = Answer(epoch.model.processor.tokenizer, params, eos_token_ids)
        end_ids = end_token_ids(params, eos_token_ids)
        sampler = RowSampler(params, request.token_ids, end_ids, request.choice)
        return cls(request, epoch, inputs, answer, sampler)
