"""Who may touch which slot of the staging file. Bookkeeping only.

    read slots   free (ours) -> taken (filled by us, read by the worker) -> released: free
    write slots  open (the worker fills them) -> offered (read by us) -> given back: open

Invariants, after every call: num_free + num_taken == num_read; a slot is handed out to one holder
until it comes back. What the worker says about slots that it does not hold is an error and changes
nothing.

Must not know: bytes, files, sockets.
"""

from __future__ import annotations

from collections.abc import Collection


class Slots:
    """Slots 0..num_read-1 are for reading, the next num_write ones for writing."""

    def __init__(self, num_read: int, num_write: int) -> None:
        self.num_read = num_read
        self.num_write = num_write
        self._free = list(reversed(range(num_read)))
        self._taken: set[int] = set()
        self._offered: set[int] = set()

    @property
    def num_free(self) -> int:
        """Read slots that `take` could hand out."""
        return len(self._free)

    @property
    def num_taken(self) -> int:
        """Read slots that are being filled or that the worker holds."""
        return len(self._taken)

    def take(self, count: int) -> list[int]:
        """Hand out `count` read slots, or all that are free when there are fewer."""
        first = max(0, len(self._free) - count)
        taken = self._free[first:]
        del self._free[first:]
        self._taken.update(taken)
        return taken

    def release(self, slots: Collection[int]) -> None:
        """Take read slots back.

        Raises: ValueError when one of them is not handed out, or named twice.
        """
        chosen = _once(slots)
        if not self._taken.issuperset(chosen):
            raise ValueError(f"Slot {min(chosen - self._taken)} is released, but not handed out.")
        self._taken -= chosen
        self._free += slots

    def offer(self, slots: Collection[int]) -> None:
        """The worker hands filled write slots over.

        Raises: ValueError when one of them is no write slot, is offered already, or named twice.
        """
        chosen = _once(slots)
        strange = [s for s in chosen if not self.num_read <= s < self.num_read + self.num_write]
        if strange or not self._offered.isdisjoint(chosen):
            slot = min(strange or chosen & self._offered)
            raise ValueError(f"Slot {slot} is offered, but it is not the worker's to fill.")
        self._offered |= chosen

    def give_back(self, slots: Collection[int]) -> None:
        """The worker may fill these again.

        Raises: ValueError when one of them was not offered.
        """
        if not self._offered.issuperset(slots):
            raise ValueError(f"Slots {sorted(slots)} are given back, but not offered; a bug.")
        self._offered.difference_update(slots)


def _once(slots: Collection[int]) -> set[int]:
    chosen = set(slots)
    if len(chosen) != len(slots):
        raise ValueError("A slot is named twice.")
    return chosen
