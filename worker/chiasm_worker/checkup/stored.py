"""What a model's files hold now, against what was loaded from them and is served.

Weights are read anew from the files, a slice at a time, and each tensor's digest is looked for
among those that were made when the model was loaded. Nothing of a tensor is kept, half of the time
is left to others, and when the time is over the rest is left out. Configuration, processor,
tokenizer and template are read anew and digested as for the identity.

Must not know: engines, requests.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import torch
from transformers import AutoConfig, AutoProcessor

from chiasm_worker.checkup.readings import Stored
from chiasm_worker.identity import config_digest, processor_digest
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.models.files import weight_files

_SLICE_BYTES = 32 * 2**20
_MAX_HEADER_BYTES = 100 * 2**20
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


@dataclass(frozen=True, slots=True)
class Pace:
    """How much of a core and how long.

    Attributes:
        seconds: after which the rest is left out.
        clock, sleep: of whoever calls.
    """

    seconds: float
    clock: Callable[[], float]
    sleep: Callable[[float], object]


def compare_stored(model: LoadedModel, fields: Mapping[str, object], pace: Pace) -> Stored:
    """Read the model's folder anew; for a thread of its own, it takes up to `pace.seconds`.

    Args:
        fields: the identity that is served.
    """
    try:
        differing = {name for name, digest in _digests(model).items() if fields.get(name) != digest}
        weights = _Weights(model, pace)
        differing |= weights.compare()
    except (OSError, ValueError, LookupError) as error:
        return Stored(fault=f"{type(error).__name__}: {error}")
    return Stored(tuple(sorted(differing)), weights.num_read, weights.num_bytes)


def _digests(model: LoadedModel) -> dict[str, str]:
    """Identity fields that files other than the weights' make."""
    config = AutoConfig.from_pretrained(model.path, local_files_only=True)
    processor: Any = AutoProcessor.from_pretrained(model.path, local_files_only=True)
    processor.chat_template = processor.chat_template or model.family.default_template
    return {
        "compute.model.config": config_digest(config),
        "compute.processor.config": processor_digest(processor),
    }


class _Weights:
    """The tensors in a folder's files, looked for among those that were loaded.

    Files may hold tensors that no model loads (buffers of older versions), so what was loaded and
    is no longer there counts, not what is there and was not loaded. Only where the time is too
    short for all of them do strange ones count, when they are most.
    """

    def __init__(self, model: LoadedModel, pace: Pace) -> None:
        self._known = model.digests.tensors
        self._dtype = model.dtype
        self._pace = pace
        self._files = weight_files(model.path)
        self.num_bytes = sum(file.stat().st_size for file in self._files)
        self.num_read = 0

    def compare(self) -> set[str]:
        """The identity's fields in which the weights differ."""
        end = self._pace.clock() + self._pace.seconds
        seen: set[str] = set()
        num_tensors = num_strange = 0
        for file in self._files:
            with file.open("rb") as opened:
                for tensor in read_header(opened):
                    if self._pace.clock() > end:
                        return {"compute.weights"} if 2 * num_strange > num_tensors else set()
                    digests = self._digest(opened, tensor)
                    num_tensors += 1
                    num_strange += digests.isdisjoint(self._known)
                    seen |= digests
        self.num_read = self.num_bytes
        missing = {group for digest, group in self._known.items() if digest not in seen}
        return {f"compute.weights.{group}" for group in missing}

    def _digest(self, opened: BinaryIO, tensor: StoredTensor) -> set[str]:
        """A tensor's digests: in its own type, and in the one that is computed with."""
        own, served = hashlib.sha256(), hashlib.sha256()
        opened.seek(tensor.start)
        left = tensor.num_bytes
        while left:
            started = self._pace.clock()
            data = bytearray(opened.read(min(left, _SLICE_BYTES)))
            if not data:
                raise ValueError(f"a file of weights ends {left} bytes too early")
            left -= len(data)
            own.update(data)
            if tensor.dtype is not None:
                part = torch.frombuffer(data, dtype=tensor.dtype).to(self._dtype)
                served.update(part.view(torch.uint8).numpy().data)
            self.num_read += len(data)
            self._pace.sleep(self._pace.clock() - started)
        return {own.hexdigest(), served.hexdigest()}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies in its file; no dtype: one that torch is not asked about."""

    start: int
    num_bytes: int
    dtype: torch.dtype | None


def read_header(opened: BinaryIO) -> list[StoredTensor]:
    """The tensors of a safetensors file, in their order.

    Read and not mapped: a file that is cut off while it is read must not end the process.

    Raises: ValueError when it is none.
    """
    (size,) = struct.unpack("<Q", opened.read(8).ljust(8, b"\0"))
    if not 0 < size <= _MAX_HEADER_BYTES:
        raise ValueError(f"a header of {size} bytes is none of a safetensors file")
    header = json.loads(opened.read(size))
    tensors = [
        StoredTensor(8 + size + start, end - start, _DTYPES.get(each["dtype"]))
        for name, each in header.items()
        if name != "__metadata__"
        for start, end in (each["data_offsets"],)
    ]
    return sorted(tensors, key=lambda tensor: tensor.start)
