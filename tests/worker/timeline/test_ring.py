"""The ring forgets the oldest first, says from when on it is whole, and never grows."""

from __future__ import annotations

import math
import threading

from chiasm_contract.timeline import Event, Row
from chiasm_worker.timeline.ring import MAX_FOLLOWED, Timeline
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.timeline.notes import Clock, step


def test_events_are_bounded() -> None:
    clock = Clock()
    timeline = Timeline(clock, lambda: 0, max_events=3)
    for second in range(5):
        timeline.add(Event("a", "decode", second, second + 0.5))
    assert [event.start for event in timeline.events()] == [2, 3, 4]
    assert timeline.whole_since == 1.5


@given(st.lists(st.integers(0, 6), max_size=60))
def test_steps_are_bounded_by_their_rows(sizes: list[int]) -> None:
    timeline = Timeline(Clock(), lambda: 0, max_rows=20)
    for number, size in enumerate(sizes):
        timeline.step(
            step(number, number, number + 1, [Row(f"{i}#0", 0, 1, True) for i in range(size)])
        )
    kept = timeline.steps()
    assert sum(len(each.rows) + 1 for each in kept) <= 20
    assert [each.number for each in kept] == list(range(len(sizes)))[len(sizes) - len(kept) :]
    forgotten = len(sizes) - len(kept)
    # The end of the last one that is gone.
    assert timeline.whole_since == (forgotten or -math.inf)


def test_a_followed_request_that_nobody_takes_goes_in_the_end() -> None:
    timeline = Timeline(Clock(), lambda: 0)
    for number in range(MAX_FOLLOWED + 1):
        timeline.follow(f"r{number}")
    assert timeline.take("r0") is None
    last = timeline.take(f"r{MAX_FOLLOWED}")
    assert last is not None
    assert timeline.take(f"r{MAX_FOLLOWED}") is None


def test_only_what_is_followed_is_added_up() -> None:
    timeline = Timeline(Clock(), lambda: 0)
    timeline.follow("a")
    timeline.notes("a").instant("queued", prompt_tokens=4)
    timeline.notes("b").instant("queued", prompt_tokens=5)
    timeline.step(step(0, 0.0, 1.0, [Row("a#0", 0, 4, True), Row("b#1", 0, 5, True)]))
    followed = timeline.take("a")
    assert followed is not None
    assert [event.details for event in followed.events] == [{"prompt_tokens": 4}]
    assert [chunk.num_tokens for chunk in followed.chunks] == [4]


def test_reading_while_another_thread_writes() -> None:
    timeline = Timeline(max_events=256)
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            timeline.notes("a").instant("seen")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(500):
            assert len(timeline.events()) <= 256
    finally:
        done.set()
        writer.join()
