"""The pen of one request: notes what it spends time on, under its name.

Whoever holds one need not know whose it is. Any thread may write.

Must not know: where notes go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chiasm_contract.timeline import Detail, Event, EventName


class Notes:
    """Of one request."""

    def __init__(
        self, request: str, clock: Callable[[], float], add: Callable[[Event], None]
    ) -> None:
        self.request = request
        self._clock = clock
        self._add = add

    @contextmanager
    def phase(self, name: EventName, **details: Detail) -> Iterator[None]:
        """Note how long the block takes, also when it fails."""
        start = self._clock()
        try:
            yield
        finally:
            self.since(start, name, **details)

    def since(self, start: float, name: EventName, **details: Detail) -> None:
        """Note what began at `start` and has ended."""
        self._add(Event(self.request, name, start, self._clock(), details))

    def instant(self, name: EventName, **details: Detail) -> None:
        """Note what takes no time."""
        now = self._clock()
        self._add(Event(self.request, name, now, now, details))


def _no_time() -> float:
    return 0.0


def _nowhere(_: Event) -> None:
    pass


UNNOTED = Notes("", _no_time, _nowhere)
"""For work that belongs to no request."""
