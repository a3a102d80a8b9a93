"""The file of slots that sidecar and worker both map: payloads cross the pod here, not the socket.

Each connection has a file of its own, removed when it ends: what a worker of before still reads or
writes through its mapping is never a slot of the next one's, so no bookkeeping has to outlive a
process. The disk space is claimed at once, for a mapping of a file that cannot grow ends in SIGBUS
and not in an exception. 0600: both containers run as the same user.

A worker can write into its slots at any time, also while we read: `read` copies first, and only the
copy is judged and kept.

Must not know: what a record means.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
from pathlib import Path

from chiasm_sidecar.kv.slots import Slots

# Most bytes go from the tiers to the worker: what is written was computed, which takes longer.
_READ_SHARE = 0.75
_MODE = 0o600


class Staging:
    """One connection's slots. Use as a context manager."""

    def __init__(self, base_path: Path, total_bytes: int, slot_bytes: int) -> None:
        """Claim the file.

        Raises: ValueError when two slots are more than the bytes allowed, OSError when the file
        cannot be made.
        """
        count = total_bytes // slot_bytes
        if count < 2:
            raise ValueError(
                f"Staging holds {total_bytes} bytes, and a block of this model takes {slot_bytes}; "
                f"set tiers.staging_bytes to {2 * slot_bytes} or more."
            )
        num_read = min(count - 1, max(1, int(count * _READ_SHARE)))
        self.slots = Slots(num_read, count - num_read)
        self.slot_bytes = slot_bytes
        self.path = base_path.with_name(f"{base_path.name}.{secrets.token_hex(8)}")
        self._map = _mapped(self.path, count * slot_bytes)
        self._view = memoryview(self._map)

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *_: object) -> None:
        self.path.unlink(missing_ok=True)
        self._view.release()
        self._map.close()

    def write(self, slot: int, record: bytes) -> None:
        """Put a record into a slot; `record` is not longer than a slot."""
        start = slot * self.slot_bytes
        self._view[start : start + len(record)] = record

    def read(self, slot: int) -> bytes:
        """A copy of what is in a slot."""
        start = slot * self.slot_bytes
        return bytes(self._view[start : start + self.slot_bytes])


def _mapped(path: Path, num_bytes: int) -> mmap.mmap:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    try:
        os.posix_fallocate(file, 0, num_bytes)
        return mmap.mmap(file, num_bytes)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)


def remove_leftovers(base_path: Path) -> None:
    """Remove the files of processes that ended without doing so."""
    for path in base_path.parent.glob(f"{base_path.name}.*"):
        with contextlib.suppress(OSError):
            path.unlink()
