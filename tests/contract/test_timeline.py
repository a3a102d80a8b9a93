"""Notes travel as arrays and come back as what they were."""

from __future__ import annotations

import json

import pytest
from chiasm_contract.timeline import (
    Anchor,
    Encode,
    Event,
    PodRecording,
    Recording,
    Row,
    Step,
    choice_id,
    request_of,
)

STEP = Step(
    1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5,
    (Row("a#0", 0, 16, False), Row("b#1", 7, 1, True)),
    (Encode(("a#0",), "image", 0.1, 0.2, 36),),
    2, 0, 5,
)  # fmt: skip


def test_a_recording_survives_json() -> None:
    anchor = Anchor(clock_seconds=1.5, wall_ns=10**18)
    event = Event("a", "decode", 0.0, 0.1, {"modality": "image", "bytes": 3})
    worker = Recording(part="worker", anchor=anchor, events=(event,), steps=(STEP,), num_blocks=9)
    pod = PodRecording(sidecar=Recording(part="sidecar", anchor=anchor), worker=worker)
    text = json.dumps(
        {"sidecar": pod.sidecar.model_dump(), "worker": worker.model_dump()}, separators=(",", ":")
    )
    assert PodRecording.model_validate_json(text) == pod
    assert PodRecording.model_validate_json(pod.model_dump_json()) == pod
    assert STEP.num_tokens == 17


def test_clocks_are_brought_together() -> None:
    anchor = Anchor(clock_seconds=100.0, wall_ns=2 * 10**18)
    assert anchor.to_wall_ns(99.5) == 2 * 10**18 - 500_000_000


@pytest.mark.parametrize("request_id", ["chatcmpl-ab", "with#hash", "a.b.c"])
def test_a_choice_names_its_request(request_id: str) -> None:
    assert request_of(choice_id(request_id, 3, 0)) == request_id
    assert request_of(choice_id(request_id, 3, 2)) == request_id


def test_a_name_without_serial_is_a_request() -> None:
    assert request_of("probe") == "probe"
