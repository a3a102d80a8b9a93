"""What is read along in another sidecar's answer, however it is cut on its way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chiasm_contract.errors import Overloaded
from chiasm_sidecar.front_door.answers import DONE, fault_event
from chiasm_sidecar.traffic.counting import Timing
from chiasm_sidecar.traffic.observer import Observed, StreamReader, comment, measures

TIMING = Timing(first_token_seconds=0.25, mean_gap_seconds=0.125)
MEASURES = comment(measures(3, TIMING))


def chunk(text: str | None, index: int = 0, **fields: Any) -> bytes:
    choice = {"index": index, "delta": {"content": text}, **fields}
    return b"data: " + json.dumps({"id": "a", "choices": [choice]}).encode() + b"\n\n"


TOLD = chunk("") + chunk('an "error" in') + chunk("red", index=1) + chunk(" words") + chunk(None)


def read(*pieces: bytes, keeps_text: bool = True) -> tuple[bytes, Observed]:
    reader = StreamReader(Observed(), keeps_text)
    return b"".join([reader.feed(piece) for piece in pieces]), reader.observed


@pytest.mark.parametrize("keeps_text", [True, False])
def test_an_answer_is_the_same_wherever_it_is_split(keeps_text: bool) -> None:
    stream = TOLD + MEASURES + DONE
    for place in range(len(stream) + 1):
        passed, observed = read(stream[:place], stream[place:], keeps_text=keeps_text)
        assert passed == TOLD + DONE, "the comment is taken out"
        assert (observed.whole, observed.fault_status) == (True, None)
        assert (observed.num_tokens, observed.timing) == (3, TIMING)
        assert observed.answers() == (['an "error" in words', "red"] if keeps_text else [])


def test_only_whole_events_are_passed_on() -> None:
    reader = StreamReader(Observed(), keeps_text=False)
    stream = TOLD + MEASURES + DONE
    passed = b""
    for byte in stream:
        piece = reader.feed(bytes([byte]))
        assert piece.endswith(b"\n\n") or not piece
        passed += piece
    assert passed == TOLD + DONE


@pytest.mark.parametrize("keeps_text", [True, False])
def test_a_fault_ends_an_answer_that_is_not_whole(keeps_text: bool) -> None:
    fault = fault_event(Overloaded("Full.", retry_after_seconds=1))
    passed, observed = read(TOLD, fault, keeps_text=keeps_text)
    assert passed == TOLD + fault
    assert (observed.whole, observed.fault_status) == (False, 503)


def test_text_that_nobody_wants_is_not_read() -> None:
    _, observed = read(b"data: {no json}\n\n", TOLD, DONE, keeps_text=False)
    assert (observed.whole, observed.texts) == (True, {})


def test_what_says_nothing_harms_nothing() -> None:
    without = [b"data: {no json}\n\n", b"data: 5\n\n"]
    without += [f"data: {json.dumps(each)}\n\n".encode() for each in (
        {}, {"choices": None}, {"choices": [{"index": 0}]}, {"choices": [{"delta": None}]},
    )]  # fmt: skip
    _, observed = read(*without, TOLD)
    assert (observed.whole, len(observed.texts)) == (False, 2)
