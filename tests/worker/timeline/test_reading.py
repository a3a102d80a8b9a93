"""Who asks gets the last seconds, or one request with whole steps and what came between them."""

from __future__ import annotations

from chiasm_contract.timeline import ENGINE, Event, Recording, Row
from chiasm_worker.timeline import reading
from chiasm_worker.timeline.ring import Timeline

from tests.worker.timeline.notes import Clock, step


def busy() -> tuple[Timeline, Clock]:
    clock = Clock()
    timeline = Timeline(clock, lambda: 10**18, max_rows=100)
    timeline.add(Event("r", "receive", 1.0, 1.5))
    timeline.add(Event("other", "decode", 1.0, 1.2))
    for number in range(10):
        rows = [Row("r#0", number, 1, True)] if number >= 4 else [Row("other#1", number, 1, True)]
        timeline.step(step(number, number, number + 1, rows))
    timeline.add(Event("other", "restore", 6.0, 6.2))
    clock.now = 10.0
    return timeline, clock


def test_the_last_seconds() -> None:
    timeline, _ = busy()
    found = Recording.model_validate_json(reading.last(timeline, 4.5, 7))
    assert [each.number for each in found.steps] == [5, 6, 7, 8, 9]
    assert [event.name for event in found.events] == ["restore"]
    assert (found.part, found.num_blocks, found.is_whole) == ("worker", 7, True)
    assert found.anchor.to_wall_ns(9.0) == 10**18 - 10**9


def test_one_request_with_what_held_it_up() -> None:
    timeline, _ = busy()
    found = Recording.model_validate_json(reading.of_request(timeline, "r", 7))
    assert [each.number for each in found.steps] == [4, 5, 6, 7, 8, 9]
    assert [(event.request, event.name) for event in found.events] == [
        ("r", "receive"),
        (ENGINE, "restore"),
    ]
    assert found.is_whole


def test_an_unknown_request_is_empty_and_not_whole() -> None:
    timeline, _ = busy()
    found = Recording.model_validate_json(reading.of_request(timeline, "who", 7))
    assert (found.events, found.steps, found.is_whole) == ((), (), False)


def test_what_was_forgotten_is_said() -> None:
    timeline, clock = busy()
    for number in range(10, 70):
        timeline.step(step(number, number, number + 1, [Row("r#0", number, 1, True)]))
    clock.now = 70.0
    assert Recording.model_validate_json(reading.last(timeline, 5.0, 7)).is_whole
    assert not Recording.model_validate_json(reading.last(timeline, 69.0, 7)).is_whole
    assert not Recording.model_validate_json(reading.of_request(timeline, "r", 7)).is_whole
