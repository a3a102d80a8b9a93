"""One copy of what the encoder takes of an item, for all requests of a scope that hold it.

A file that was read before is not even decoded: its item is known, and what the encoder takes is
made from the bytes should it have to run again, which is seldom for what was seen before.

Must not know: limits, prompts, the engine.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chiasm_contract.config import MediaKind
from chiasm_contract.errors import InvariantError

from chiasm_worker.modality.media import MediaItem, Processed, Tensors
from chiasm_worker.modality.seen_files import FileKey, SeenFiles
from chiasm_worker.timeline.notes import UNNOTED, Notes

# Whose requests share it, the digest of what it shows, and in which of its family's ways it is
# looked at.
MediaKey = tuple[str, bytes, int]


@dataclass(frozen=True, slots=True)
class MediaSource:
    """A file and how it is read.

    Attributes:
        scope_fp: whose requests share what is known of it; those of another would notice by their
            time that it was read before.
        variant: which of the ways in which the family looks at such an item.
        decode: to what a person would see or hear, with its digest.
        process: to the item and what the encoder takes of it.
    """

    scope_fp: str
    kind: MediaKind
    variant: int
    data: bytes
    decode: Callable[[bytes], Any]
    process: Callable[[Any], Processed]


class ReadyInputs:
    """What the encoder takes of an item.

    Attributes:
        key: what those that may share it have in common.
        item: whose they are, at detail 'high': the encoder's work is the same at each.
    """

    def __init__(self, key: MediaKey, item: MediaItem, tensors: Tensors) -> None:
        self.key = key
        self.item = item
        self._tensors = tensors

    @property
    def num_bytes(self) -> int:
        """Bytes that whoever holds this keeps in memory."""
        return sum(tensor.nbytes for tensor in self._tensors.values())

    def tensors(self) -> Tensors:
        """By the names under which the model takes them."""
        return self._tensors


class FileInputs:
    """What the encoder takes of a known item, made from its file whenever it is asked for.

    Attributes: as of ReadyInputs.
    """

    def __init__(self, key: MediaKey, item: MediaItem, source: MediaSource) -> None:
        self.key = key
        self.item = item
        self._source = source

    @property
    def num_bytes(self) -> int:
        """Bytes that whoever holds this keeps in memory."""
        return len(self._source.data)

    def tensors(self) -> Tensors:
        """By the names under which the model takes them; not kept here.

        Raises: InvariantError when the file shows something else than when it was read first.
        """
        item, tensors = self._source.process(self._source.decode(self._source.data))
        if item.identity != self.item.identity:
            raise InvariantError(
                f"A file showed {self.item.identity} and, read again, {item.identity}; bug."
            )
        return tensors


MediaInputs = ReadyInputs | FileInputs


class SharedMedia:
    """What requests hold now, and which files were read before; safe from several threads."""

    def __init__(self) -> None:
        self._seen = SeenFiles()
        self._live: weakref.WeakValueDictionary[MediaKey, MediaInputs] = (
            weakref.WeakValueDictionary()
        )
        self._lock = threading.Lock()

    def read(self, source: MediaSource, notes: Notes = UNNOTED) -> MediaInputs:
        """The inputs of a file's item, made only where neither file nor item is known.

        Raises: ClientFault when the file is at fault.
        """
        kind = source.kind
        with notes.phase("hash", modality=kind):
            file = FileKey.of(source.scope_fp, kind, source.variant, source.data)
        with self._lock:
            known = self._seen.find(file)
            if known is not None:
                key = (source.scope_fp, known.identity.digest, source.variant)
                notes.instant("seen", modality=kind)
                return self._live.setdefault(key, FileInputs(key, known, source))
        with notes.phase("decode", modality=kind):
            canonical = source.decode(source.data)
        key = (source.scope_fp, canonical.digest, source.variant)
        with self._lock:
            inputs = self._live.get(key)
        if inputs is None:
            with notes.phase("process", modality=kind):
                made = ReadyInputs(key, *source.process(canonical))
            with self._lock:
                inputs = self._live.setdefault(key, made)
        with self._lock:
            self._seen.remember(file, inputs.item)
        return inputs

    def ready(self, inputs: MediaInputs) -> MediaInputs:
        """The same, made now if they were not; shared with requests that come from now on."""
        if isinstance(inputs, ReadyInputs):
            return inputs
        with self._lock:
            current = self._live.get(inputs.key)
        if isinstance(current, ReadyInputs):
            return current
        made = ReadyInputs(inputs.key, inputs.item, inputs.tensors())
        with self._lock:
            self._live[inputs.key] = made
        return made
