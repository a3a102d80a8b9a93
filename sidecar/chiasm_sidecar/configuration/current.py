"""What a source has in use: a folder that readers see change as a whole, as a mounted one does.

    CURRENT/<source>                a link to .<source>, made with the first value: before that a
                                    reader finds nothing, not a folder that happens to be empty
    CURRENT/.<source>/<entry>       a link to ..data/<entry>
    CURRENT/.<source>/..data        a link to the generation in use: changed by one rename
    CURRENT/.<source>/..<n>/        a generation: an entry a file, and ..record.json beside them

A generation carries its record (id, lease and its token), so that both change in one step and a
restarted container finds what it had. Every generation but the one in use is one to be ended: its
lease revoked, its folder removed. The folder lies in memory; modes are 0700 and 0600.

Must not know: what entries mean, the server.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from chiasm_sidecar.configuration.decide import Lease
from chiasm_sidecar.configuration.offers import Entries

LINK = "..data"
_RECORD = "..record.json"


class Held(BaseModel):
    """A lease with what ends it. Readings are of the node's steady clock, which a restarted
    container shares."""

    model_config = ConfigDict(frozen=True)

    token: str = Field(repr=False)
    until: float = Field(description="After that nothing of it is left, whatever is done.")
    lease_id: str | None = Field(default=None, repr=False)
    lease: Lease | None = None


class Record(BaseModel):
    """What is known of a generation besides its entries."""

    model_config = ConfigDict(frozen=True)

    id: str
    restart: str | None = None
    held: Held | None = Field(default=None, repr=False)
    rotations: int = 0


@dataclass(frozen=True)
class Generation:
    """One set of entries in its folder."""

    number: int
    folder: Path
    record: Record
    entries: Entries = field(repr=False)


class Current:
    """The folder of one source."""

    def __init__(self, path: Path) -> None:
        """`path` is what readers know. Raises: OSError when the folder cannot be made."""
        self._known = path
        self.path = path.with_name(f".{path.name}")
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._last = max(self._numbers(), default=0)

    @property
    def last_number(self) -> int:
        """Of the newest generation that there ever was."""
        return self._last

    def load(self) -> Generation | None:
        """The generation in use, as the files have it."""
        with contextlib.suppress(OSError, ValueError):
            return self._read(int(os.readlink(self.path / LINK).removeprefix("..")))
        return None

    def others(self) -> list[Generation]:
        """Those not in use, oldest first; what has no record is removed."""
        in_use = self.load()
        found = []
        for number in sorted(self._numbers()):
            if in_use is not None and number == in_use.number:
                continue
            try:
                found.append(self._read(number))
            except (OSError, ValueError):
                shutil.rmtree(self.path / f"..{number}", ignore_errors=True)
        return found

    def stage(self, entries: Entries, record: Record) -> Generation:
        """A new generation, not in use.

        Raises: OSError when it cannot be written; then nothing is left of it.
        """
        self._last += 1
        folder = self.path / f"..{self._last}"
        folder.mkdir(mode=0o700)
        generation = Generation(self._last, folder, record, dict(entries))
        try:
            self.note(generation, record)
            for name, value in entries.items():
                _write(folder / name, value)
        except OSError:
            self.remove(generation)
            raise
        return generation

    def fill(self, generation: Generation, entries: Entries, record: Record) -> Generation:
        """Entries for a generation that was staged before there were any."""
        for name, value in entries.items():
            _write(generation.folder / name, value)
        filled = Generation(generation.number, generation.folder, record, dict(entries))
        return self.note(filled, record)

    def note(self, generation: Generation, record: Record) -> Generation:
        """The generation with another record."""
        _write(generation.folder / _RECORD, record.model_dump_json().encode())
        return Generation(generation.number, generation.folder, record, generation.entries)

    def swap(self, generation: Generation) -> None:
        """Put a generation in use; whoever opens an entry sees the old or the new one."""
        fresh = self.path / "..data_tmp"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(generation.folder.name)
        fresh.rename(self.path / LINK)
        for name in generation.entries:
            link = self.path / name
            if not link.is_symlink():
                link.symlink_to(f"{LINK}/{name}")
        for link in self.path.iterdir():
            if not link.name.startswith("..") and link.name not in generation.entries:
                link.unlink()
        if not self._known.is_symlink():
            self._known.symlink_to(self.path.name)

    def remove(self, generation: Generation) -> None:
        """Forget a generation."""
        shutil.rmtree(generation.folder, ignore_errors=True)

    def _numbers(self) -> list[int]:
        names = (each.name.removeprefix("..") for each in self.path.glob("..*") if each.is_dir())
        return [int(name) for name in names if name.isdecimal()]

    def _read(self, number: int) -> Generation:
        folder = self.path / f"..{number}"
        try:
            record = Record.model_validate_json((folder / _RECORD).read_bytes())
        except ValidationError:
            # Without its cause, which quotes what was read.
            raise ValueError("a record is malformed") from None
        files = [each for each in folder.iterdir() if not each.name.startswith("..")]
        return Generation(number, folder, record, {each.name: each.read_bytes() for each in files})


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all, readable by us alone."""
    fresh = path.with_name(f"..new-{path.name}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    fresh.rename(path)
