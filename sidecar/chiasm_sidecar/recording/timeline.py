"""What the sidecar did for each request when, as plain events in bounded memory; always on.

The oldest events are forgotten first. Use from one event loop.

Must not know: HTTP, what a request asks.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

from chiasm_contract.timeline import Anchor, Detail, Event, EventName, Recording

# Half a dozen a request: about 2 MiB.
MAX_EVENTS = 2**13

# By these a person may name a request, beside the id of its answer.
REQUEST_ID, TRACE_ID = "request_id", "trace_id"


class Timeline:
    """Of one sidecar.

    Args:
        clock: seconds, monotonic.
        wall_ns: nanoseconds since 1970.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        wall_ns: Callable[[], int] = time.time_ns,
        max_events: int = MAX_EVENTS,
    ) -> None:
        self.clock = clock
        self._wall_ns = wall_ns
        self._events: deque[Event] = deque(maxlen=max_events)
        self._whole_since = -math.inf

    def anchor(self) -> Anchor:
        """This moment on both clocks."""
        return Anchor(clock_seconds=self.clock(), wall_ns=self._wall_ns())

    def add(self, event: Event) -> None:
        """Note an event."""
        if len(self._events) == self._events.maxlen:
            self._whole_since = max(self._whole_since, self._events[0].end)
        self._events.append(event)

    def find(self, name: str) -> str | None:
        """The id of the answer that has this id, or whose request or trace has; the latest one."""
        for event in reversed(self._events):
            given = (event.request, event.details.get(REQUEST_ID), event.details.get(TRACE_ID))
            if name and name in given:
                return event.request
        return None

    def last(self, seconds: float) -> Recording:
        """What ended within the last `seconds`."""
        since = self.clock() - seconds
        events = tuple(event for event in self._events if event.end >= since)
        return self._recording(events, self._whole_since <= since)

    def of_request(self, request: str) -> Recording:
        """What is known of one request, by the id of its answer."""
        events = tuple(event for event in self._events if event.request == request)
        # A request's first note is of its admission.
        is_whole = bool(events) and events[0].name == "admission"
        return self._recording(events, is_whole)

    def _recording(self, events: tuple[Event, ...], is_whole: bool) -> Recording:
        # Unchecked: thousands of tuples that are our own, while others wait for the loop.
        return Recording.model_construct(
            part="sidecar", anchor=self.anchor(), events=events, is_whole=is_whole
        )


class Notes:
    """The pen of one request, and what it wrote."""

    def __init__(self, request: str, timeline: Timeline) -> None:
        self._request = request
        self._timeline = timeline
        self.events: list[Event] = []

    def now(self) -> float:
        """The moment, on the timeline's clock."""
        return self._timeline.clock()

    def since(self, start: float, name: EventName, **details: Detail) -> float:
        """Note what began at `start` and has ended; returns the moment of its end."""
        event = Event(self._request, name, start, self._timeline.clock(), details)
        self._write(event)
        return event.end

    def instant(self, name: EventName, **details: Detail) -> None:
        """Note what takes no time."""
        now = self._timeline.clock()
        self._write(Event(self._request, name, now, now, details))

    def _write(self, event: Event) -> None:
        self.events.append(event)
        self._timeline.add(event)
