"""Answers who asks for the timeline: of the last seconds, or of one request; as JSON.

A request is answered with the whole steps that it took part in, for what else they did is what it
waited for, and with what the engine did between them.

Must not know: HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence

from chiasm_contract.recording_json import encoded
from chiasm_contract.timeline import (
    BETWEEN_STEPS,
    ENGINE,
    Event,
    Recording,
    RequestSpans,
    Step,
    request_of,
)

from chiasm_worker.timeline.ring import Timeline
from chiasm_worker.timeline.spans import spans_of


def last(timeline: Timeline, seconds: float, num_blocks: int) -> bytes:
    """A Recording of what ended within the last `seconds`."""
    since = timeline.clock() - seconds
    events = [event for event in timeline.events() if event.end >= since]
    steps = [step for step in timeline.steps() if step.end >= since]
    return _recording(timeline, events, steps, num_blocks, timeline.whole_since <= since)


def of_request(timeline: Timeline, request: str, num_blocks: int) -> bytes:
    """A Recording of one request; empty when nothing is known of it."""
    all_events = timeline.events()
    own = [event for event in all_events if event.request == request]
    steps = [step for step in timeline.steps() if takes_part(step, request)]
    starts = [event.start for event in own] + [step.start for step in steps]
    ends = [event.end for event in own] + [step.end for step in steps]
    since = min(starts, default=timeline.clock())
    until = max(ends, default=since)
    between = [
        event
        for event in all_events
        if event.request != request
        and event.name in BETWEEN_STEPS
        and event.end >= since
        and event.start <= until
    ]
    whole = timeline.whole_since <= since and any(event.name == "receive" for event in own)
    return _recording(timeline, [*own, *map(_unnamed, between)], steps, num_blocks, whole)


def spans(timeline: Timeline, request: str) -> RequestSpans:
    """The spans of a request that was followed; empty for any other."""
    followed = timeline.take(request)
    found = [] if followed is None else spans_of(followed)
    return RequestSpans(anchor=timeline.anchor(), spans=tuple(found))


def takes_part(step: Step, request: str) -> bool:
    """Whether a step computes some of a request."""
    return any(request_of(row.choice_id) == request for row in step.rows)


def _unnamed(event: Event) -> Event:
    """What held a request up, without whose it was."""
    return event._replace(request=ENGINE)


def _recording(
    timeline: Timeline,
    events: Sequence[Event],
    steps: Sequence[Step],
    num_blocks: int,
    is_whole: bool,
) -> bytes:
    # Unchecked: tens of thousands of tuples that are our own.
    recording = Recording.model_construct(
        part="worker",
        anchor=timeline.anchor(),
        events=tuple(events),
        steps=tuple(steps),
        num_blocks=num_blocks,
        is_whole=is_whole,
    )
    return encoded(recording)
