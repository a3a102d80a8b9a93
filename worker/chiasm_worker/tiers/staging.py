"""The slots through which payloads travel: one file that worker and sidecar both map.

Slots 0..num_read_slots-1 are filled by the sidecar; the others are filled here, handed over with
STORE and given back by its answer. A mapping lives as long as anybody holds it, so a slot of a
connection that has gone may still be read or written: what comes of it is judged, or nothing.

Must not know: sockets, what a block means. One thread takes free slots; any gives them back.
"""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Iterable

from chiasm_contract.block_record import record_bytes
from chiasm_contract.block_wire import Welcome


class Staging:
    """One connection's slots.

    Raises: OSError when the file cannot be mapped, ValueError when its slots are not as they must
    be for records with payloads of `payload_bytes`.
    """

    def __init__(self, welcome: Welcome, payload_bytes: int) -> None:
        self.record_bytes = record_bytes(payload_bytes)
        self.num_read_slots = welcome.num_read_slots
        self._slot_bytes = welcome.slot_bytes
        num_slots = welcome.num_read_slots + welcome.num_write_slots
        if welcome.slot_bytes < self.record_bytes or min(
            welcome.num_read_slots, welcome.num_write_slots
        ) < 0:  # fmt: skip
            raise ValueError(
                f"The block service has slots of {welcome.slot_bytes} bytes; a record here takes "
                f"{self.record_bytes}."
            )
        descriptor = os.open(welcome.staging_path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            size = os.fstat(descriptor).st_size
            if size < num_slots * welcome.slot_bytes or not num_slots:
                raise ValueError(
                    f"{welcome.staging_path} has {size} bytes; {num_slots} slots of "
                    f"{welcome.slot_bytes} bytes need {num_slots * welcome.slot_bytes}."
                )
            self._bytes = memoryview(mmap.mmap(descriptor, num_slots * welcome.slot_bytes))
        finally:
            os.close(descriptor)
        self._free = deque(range(welcome.num_read_slots, num_slots))

    @property
    def num_free(self) -> int:
        """Write slots that `take` could hand out now."""
        return len(self._free)

    def record(self, slot: int) -> memoryview:
        """The bytes of the record in a slot."""
        start = slot * self._slot_bytes
        return self._bytes[start : start + self.record_bytes]

    def take(self) -> int | None:
        """A free write slot."""
        return self._free.popleft() if self._free else None

    def give_back(self, slots: Iterable[int]) -> None:
        """Make write slots free again."""
        self._free.extend(slots)
