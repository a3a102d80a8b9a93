"""A request's spans say where its time went, whatever became of it."""

from __future__ import annotations

import pytest
from chiasm_contract.timeline import Encode, Row, Span
from chiasm_worker.timeline.followed import Followed
from chiasm_worker.timeline.reading import spans
from chiasm_worker.timeline.ring import Timeline
from chiasm_worker.timeline.spans import ROOT, spans_of

from tests.worker.timeline.notes import Clock, step


def followed_through(num_tokens: int = 4) -> list[Span]:
    """A picture's request: 1 s of reading, 1 s in the queue, two chunks, then its tokens."""
    clock = Clock()
    timeline = Timeline(clock, lambda: 0)
    timeline.follow("r")
    notes = timeline.notes("r")
    notes.since(0.0, "receive")
    with notes.phase("decode", modality="image"):
        clock.now = 1.0
    timeline.instant("r#0", "queued", {"prompt_tokens": 40, "image_items": 1})
    encode = Encode(("r#0", "other#1"), "image", 2.0, 2.5, 72)
    timeline.step(
        step(0, 2.0, 3.0, [Row("r#0", 0, 32, False), Row("other#1", 9, 1, True)], [encode])
    )
    timeline.step(step(1, 3.0, 4.0, [Row("r#0", 32, 8, True)]))
    for number in range(1, num_tokens):
        timeline.step(
            step(1 + number, 3.0 + number, 4.0 + number, [Row("r#0", 39 + number, 1, True)])
        )
    clock.now = 4.0 + num_tokens
    timeline.instant("r#0", "end", {"reason": "stop", "choice": 0, "cached_tokens": 0})
    found = spans(timeline, "r")
    assert spans(timeline, "r").spans == ()
    return list(found.spans)


def test_where_the_time_went() -> None:
    found = followed_through()
    by_name = {span.name: span for span in found}
    assert (by_name["decode"].start, by_name["decode"].end) == (4.0, 7.0)
    assert by_name["decode"].attributes["tokens"] == 4
    assert by_name["decode"].attributes["longest_gap_seconds"] == 1.0
    assert by_name["decode"].attributes["finish_reason"] == "stop"
    queue = by_name["queue"]
    assert (queue.start, queue.end, queue.attributes["image_items"]) == (1.0, 2.0, 1)
    assert by_name["encode"].attributes == {"modality": "image", "tokens": 72, "items": 2}
    prefill = by_name["prefill"]
    assert (prefill.start, prefill.end, prefill.parent) == (2.0, 4.0, ROOT)
    chunks = [span for span in found if span.name == "prefill chunk"]
    assert [(c.start, c.end, c.attributes["tokens"]) for c in chunks] == [(2, 3, 32), (3, 4, 8)]
    assert all(found[c.parent] is prefill for c in chunks)


def test_parents_stand_before_their_children() -> None:
    found = followed_through()
    assert all(span.parent < place for place, span in enumerate(found))
    assert all(span.start <= span.end for span in found)


@pytest.mark.parametrize("num_tokens", [1, 5000])
def test_a_long_answer_makes_no_more_spans_than_a_short_one(num_tokens: int) -> None:
    assert len(followed_through(num_tokens)) == len(followed_through())


def test_each_choice_has_its_own_number_and_reason() -> None:
    """The first one failed before its first token; the third began before the second."""
    timeline = Timeline(Clock(), lambda: 0)
    timeline.follow("r")
    for number, choice in enumerate(("r#0.2", "r#0.1")):
        timeline.step(step(number, number, number + 1.0, [Row(choice, 0, 8, True)]))
    timeline.instant("r#0.1", "end", {"reason": "stop", "choice": 1})
    timeline.instant("r#0.2", "end", {"reason": "length", "choice": 2})
    decodes = [span.attributes for span in spans(timeline, "r").spans if span.name == "decode"]
    assert {each["choice"]: each["finish_reason"] for each in decodes} == {1: "stop", 2: "length"}


def test_one_that_never_ran_waited() -> None:
    clock = Clock()
    timeline = Timeline(clock, lambda: 0)
    timeline.follow("r")
    timeline.instant("r#0", "queued")
    clock.now = 5.0
    timeline.instant("r#0", "end", {"reason": "abort", "choice": 0})
    (queue,) = spans(timeline, "r").spans
    assert (queue.name, queue.start, queue.end) == ("queue", 0.0, 5.0)


def test_a_failure_is_a_fault() -> None:
    timeline = Timeline(Clock(), lambda: 0)
    timeline.follow("r")
    timeline.instant("r#0", "failed")
    assert [span.fault for span in spans(timeline, "r").spans] == ["failed"]


def test_nothing_is_known_of_others() -> None:
    assert spans(Timeline(Clock(), lambda: 0), "who").spans == ()
    assert spans_of(Followed("r")) == []


def test_what_is_kept_of_a_request_is_bounded() -> None:
    followed = Followed("r")
    rows = [Row("r#0", 16 * i, 16, False) for i in range(1000)]
    for number, row in enumerate(rows):
        followed.chunk(step(number, number, number + 1, [row]), row)
        followed.encode(Encode(("r#0",), "image", 0.0, 1.0, 1))
    assert followed.num_chunks == 1000
    assert len(spans_of(followed)) < 400
