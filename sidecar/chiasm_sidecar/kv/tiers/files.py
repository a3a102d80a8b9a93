"""Records as files, and what a crash may leave of them. Blocking; called in threads.

    FOLDER/.lock                                    held while a process uses the folder
    FOLDER/.retired/PREFIX                          a tombstone
    FOLDER/NAMESPACE/manifest.json                  what the namespace was, for people
    FOLDER/NAMESPACE/ab/abcdef...                   one record, named by its block key in hex
    FOLDER/NAMESPACE/ab/.new-RANDOM                 one that is being written

A record is written beside its place and renamed into it, so under its name there is all of it or
nothing as long as the machine lives. Nothing is synced: a cache that is lost costs computing, and
what a power cut may leave (right names, wrong bytes) is what size, crc32 and checksum tell. Only
tombstones are synced, for they must not come undone.

Must not know: event loops, budgets.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from chiasm_contract.block_record import (
    HEADER_BYTES,
    Header,
    Holding,
    MalformedRecord,
    parse_header,
    record_bytes,
)
from chiasm_contract.tiers import begins

_NAMESPACE = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}-[0-9a-f]{16}")
_KEY = re.compile(r"[0-9a-f]{64}")
_MANIFEST = "manifest.json"
_NEW = ".new-"


@dataclass(frozen=True, slots=True)
class Found:
    """A record that was there when the folder was opened."""

    namespace: str
    key: bytes
    num_bytes: int
    holding: Holding
    written_at: float


class Folder:
    """One folder of records, used by one process at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None

    def open(self) -> None:
        """Claim the folder.

        Raises: OSError when it cannot be made or another process uses it (BlockingIOError).
        """
        if self._lock is not None:
            return
        self._retired.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise
        self._lock = lock

    def close(self) -> None:
        """Let another process use the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def _retired(self) -> Path:
        return self._path / ".retired"

    def _place(self, namespace: str, key: bytes) -> Path:
        name = key.hex()
        return self._path / namespace / name[:2] / name

    def read(self, namespace: str, key: bytes) -> bytes | None:
        """The bytes of a record; None when there is no file.

        Raises: OSError.
        """
        try:
            return self._place(namespace, key).read_bytes()
        except FileNotFoundError:
            return None

    def header(self, namespace: str, key: bytes) -> Header | None:
        """What a record says of itself; None when there is none.

        Raises: OSError.
        """
        try:
            return _header(self._place(namespace, key))
        except (FileNotFoundError, MalformedRecord):
            return None

    def write(self, namespace: str, key: bytes, record: bytes, manifest: bytes) -> None:
        """Put a record in its place, whole or not at all.

        Raises: OSError.
        """
        place = self._place(namespace, key)
        place.parent.mkdir(parents=True, exist_ok=True)
        described = self._path / namespace / _MANIFEST
        if not described.exists():
            described.write_bytes(manifest)
        new = place.with_name(_NEW + secrets.token_hex(8))
        try:
            new.write_bytes(record)
            new.rename(place)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise

    def remove(self, records: Iterable[tuple[str, bytes]]) -> None:
        """Remove records; those that are gone already are no fault.

        Raises: OSError.
        """
        for namespace, key in records:
            self._place(namespace, key).unlink(missing_ok=True)

    def retire(self, prefix: str) -> bool:
        """Write a tombstone that outlives a power cut; whether there was none.

        Raises: OSError.
        """
        if (self._retired / prefix).exists():
            return False
        for path, flags in ((self._retired / prefix, os.O_WRONLY | os.O_CREAT), (self._retired, 0)):
            file = os.open(path, flags | os.O_CLOEXEC, 0o600)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        return True

    def retired(self) -> set[str]:
        """The prefixes with a tombstone.

        Raises: OSError.
        """
        return {entry.name for entry in os.scandir(self._retired)}

    def sweep(self, prefix: str, max_records: int) -> list[tuple[str, bytes]]:
        """Remove up to so many records under a prefix, and what is empty then; which they were.

        Raises: OSError.
        """
        removed: list[tuple[str, bytes]] = []
        for folder in self._namespaces():
            if not begins(folder.name, prefix):
                continue
            for path in _records(folder):
                if len(removed) == max_records:
                    return removed
                path.unlink(missing_ok=True)
                if _KEY.fullmatch(path.name):
                    removed.append((folder.name, bytes.fromhex(path.name)))
            self._remove_empty(folder)
        return removed

    def _remove_empty(self, folder: Path) -> None:
        (folder / _MANIFEST).unlink(missing_ok=True)
        for path in (*(p for p in folder.iterdir() if p.is_dir()), folder):
            with contextlib.suppress(OSError):  # a writer was faster; the next sweep looks again
                path.rmdir()

    def scan(self) -> tuple[list[Found], int]:
        """What is here, oldest first, and how many files were no records and are removed.

        Raises: OSError.
        """
        found: list[Found] = []
        num_removed = 0
        for folder in self._namespaces():
            for path in _records(folder):
                record = _found(folder.name, path)
                if record is None:
                    path.unlink(missing_ok=True)
                    num_removed += 1
                else:
                    found.append(record)
        return sorted(found, key=lambda record: record.written_at), num_removed

    def _namespaces(self) -> list[Path]:
        return [path for path in self._path.iterdir() if _NAMESPACE.fullmatch(path.name)]


def _records(folder: Path) -> Iterator[Path]:
    """All files two folders deep, whatever they are."""
    for part in folder.iterdir():
        if part.is_dir():
            yield from part.iterdir()


def _header(path: Path) -> Header:
    with path.open("rb") as file:
        return parse_header(file.read(HEADER_BYTES))


def _found(namespace: str, path: Path) -> Found | None:
    """The record in a file; None when it is not the one that its name and place say."""
    try:
        header, status = _header(path), path.stat()
    except (OSError, MalformedRecord):
        return None
    _, repr_digits, scope_digits = namespace.split("-")
    right = (
        path.name == header.block_key.hex()
        and path.parent.name == path.name[:2]
        and header.repr_fp.hex().startswith(repr_digits)
        and header.scope.hex().startswith(scope_digits)
        and status.st_size == record_bytes(header.payload_bytes)
    )
    if not right:
        return None
    return Found(namespace, header.block_key, status.st_size, header.holding, status.st_mtime)
