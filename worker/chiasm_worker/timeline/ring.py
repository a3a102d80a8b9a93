"""The last events and steps, in bounded memory.

Any thread may note; a note is one append. The oldest are forgotten first: events by their number,
steps by the number of their rows, for a step of many requests is large. At the bounds this is about
4 MiB of events and 12 MiB of steps; noting a step of 16 requests takes about 10 microseconds.

Must not know: HTTP, the engine, what an event means.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import TypeVar

from chiasm_contract.timeline import Anchor, Detail, Event, EventName, Step, request_of

from chiasm_worker.timeline.followed import Followed
from chiasm_worker.timeline.notes import Notes

T = TypeVar("T")

MAX_EVENTS = 2**14
MAX_ROWS = 2**16
# Followed requests whose spans nobody has taken yet.
MAX_FOLLOWED = 1024


class Timeline:
    """Of one worker.

    Args:
        clock: seconds, monotonic.
        wall_ns: nanoseconds since 1970.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        wall_ns: Callable[[], int] = time.time_ns,
        max_events: int = MAX_EVENTS,
        max_rows: int = MAX_ROWS,
    ) -> None:
        self.clock = clock
        self._wall_ns = wall_ns
        self._max_rows = max_rows
        self._events: deque[Event] = deque(maxlen=max_events)
        self._steps: deque[Step] = deque()
        self._num_rows = 0
        self._followed: OrderedDict[str, Followed] = OrderedDict()
        # From when on nothing has been forgotten; an event's end, a step's.
        self.whole_since = -math.inf

    def anchor(self) -> Anchor:
        """This moment on both clocks."""
        return Anchor(clock_seconds=self.clock(), wall_ns=self._wall_ns())

    def notes(self, request: str) -> Notes:
        """The pen of one request."""
        return Notes(request, self.clock, self.add)

    def add(self, event: Event) -> None:
        """Note an event."""
        events = self._events
        if len(events) == events.maxlen:
            self.whole_since = max(self.whole_since, events[0].end)
        events.append(event)
        followed = self._followed.get(event.request)
        if followed is not None:
            followed.add(event)

    def instant(
        self, choice: str, name: EventName, details: Mapping[str, Detail] | None = None
    ) -> None:
        """Note something about a choice that takes no time."""
        now = self.clock()
        self.add(Event(request_of(choice), name, now, now, details or {}))

    def step(self, step: Step) -> None:
        """Note a step; one thread only."""
        self._steps.append(step)
        # A step without rows takes room, too.
        self._num_rows += len(step.rows) + 1
        while self._num_rows > self._max_rows:
            oldest = self._steps.popleft()
            self._num_rows -= len(oldest.rows) + 1
            self.whole_since = max(self.whole_since, oldest.end)
        if self._followed:
            self._tell(step)

    def events(self) -> list[Event]:
        """All that are kept, oldest first."""
        return _copied(self._events)

    def steps(self) -> list[Step]:
        """All that are kept, oldest first."""
        return _copied(self._steps)

    def follow(self, request: str, trace: bytes = b"") -> None:
        """Add up from now on what its trace will show; the one that waits longest may go.

        `trace`: what others are to be told it is a part of.
        """
        self._followed[request] = Followed(request, trace)
        while len(self._followed) > MAX_FOLLOWED:
            self._followed.popitem(last=False)

    def take(self, request: str) -> Followed | None:
        """What was added up of a request, which is followed no longer."""
        return self._followed.pop(request, None)

    def trace_of(self, request: str) -> bytes:
        """As `follow` was told; empty for one that is not followed."""
        followed = self._followed.get(request)
        return b"" if followed is None else followed.trace

    def _tell(self, step: Step) -> None:
        for row in step.rows:
            followed = self._followed.get(request_of(row.choice_id))
            if followed is not None:
                followed.chunk(step, row)
        for encode in step.encodes:
            for request in dict.fromkeys(map(request_of, encode.choice_ids)):
                followed = self._followed.get(request)
                if followed is not None:
                    followed.encode(encode)


def _copied(notes: deque[T]) -> list[T]:
    """The entries, although another thread may be adding some."""
    while True:
        try:
            return list(notes)
        except RuntimeError:  # it did; that is over in a microsecond
            continue
