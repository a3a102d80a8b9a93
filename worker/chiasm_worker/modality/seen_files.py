"""Which files were read before, and as what: equal bytes are the same item, without decoding them.

What is remembered of a file is what its prompt needs, not what the encoder takes. The one that was
not asked for the longest is forgotten first; both the number of files and the length of their
placeholders are bounded, since a video may take thousands of tokens.

Must not know: how files are read. Use under one lock.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import NamedTuple

from chiasm_contract.config import MediaKind

from chiasm_worker.modality.media import MediaItem


class FileKey(NamedTuple):
    """A file by its content, read for one scope, as one kind, in one of its family's ways."""

    scope_fp: str
    kind: MediaKind
    variant: int
    sha256: bytes

    @classmethod
    def of(cls, scope_fp: str, kind: MediaKind, variant: int, data: bytes) -> FileKey:
        """The key of a file with these bytes."""
        return cls(scope_fp, kind, variant, hashlib.sha256(data).digest())


class SeenFiles:
    """The items of the files that were read last."""

    def __init__(self, max_files: int = 1024, max_characters: int = 16 * 2**20) -> None:
        self._max_files = max_files
        self._max_characters = max_characters
        self._items: OrderedDict[FileKey, MediaItem] = OrderedDict()
        self.num_characters = 0

    def __len__(self) -> int:
        return len(self._items)

    def find(self, key: FileKey) -> MediaItem | None:
        """The item that a file showed, if it is still remembered."""
        item = self._items.get(key)
        if item is not None:
            self._items.move_to_end(key)
        return item

    def remember(self, key: FileKey, item: MediaItem) -> None:
        """Note what a file showed, and forget others where that is too much."""
        self._forget(key)
        self._items[key] = item
        self.num_characters += len(item.placeholder)
        while len(self._items) > self._max_files or self.num_characters > self._max_characters:
            self._forget(next(iter(self._items)))

    def _forget(self, key: FileKey) -> None:
        item = self._items.pop(key, None)
        if item is not None:
            self.num_characters -= len(item.placeholder)
