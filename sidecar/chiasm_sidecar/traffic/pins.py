"""Which revision a conversation is with: bounded, forgotten some time after its last turn.

Must not know: what a key is made of, which revisions there are; the clock is an argument.
Invariants: at most `max_pins`; the order is that of the last use, so the first is given up first.
"""

from __future__ import annotations

from collections import OrderedDict

MAX_PINS = 65_536  # some 12 MB


class Pins:
    """Key -> revision."""

    def __init__(self, max_pins: int = MAX_PINS) -> None:
        self._max_pins = max_pins
        self._pins: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pins)

    def find(self, key: bytes, now: float) -> str | None:
        """The revision, if it is known and not yet forgotten."""
        found = self._pins.get(key)
        if found is None:
            return None
        revision, expires = found
        if expires <= now:
            del self._pins[key]
            return None
        return revision

    def pin(self, key: bytes, revision: str, expires: float) -> None:
        """This conversation is with `revision` until `expires`, or until it is pinned anew."""
        self._pins[key] = (revision, expires)
        self._pins.move_to_end(key)
        if len(self._pins) > self._max_pins:
            self._pins.popitem(last=False)

    def clear(self) -> None:
        """Forget all."""
        self._pins.clear()
