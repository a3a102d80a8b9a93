"""Recordings as a pod would give them: a picture's request among others."""

from __future__ import annotations

from collections.abc import Sequence

from chiasm_contract.timeline import (
    Anchor,
    Encode,
    Event,
    PodRecording,
    Recording,
    Row,
    Step,
)

ANCHOR = Anchor(clock_seconds=0.0, wall_ns=1_790_000_000_000_000_000)
R, OTHER = "chatcmpl-r", "chatcmpl-other"


def step(
    number: int,
    start: float,
    seconds: float,
    rows: Sequence[Row],
    encodes: Sequence[Encode] = (),
) -> Step:
    """1 % each of scheduling, sampling and bookkeeping; encoders, then the model take the rest."""
    little = seconds / 100
    end, scheduled = start + seconds, start + little
    encoded = max([scheduled, *(encode.end for encode in encodes)])
    times = (start, scheduled, encoded, end - 2 * little, end - little, end)
    return Step(number, *times, tuple(rows), tuple(encodes), len(rows), 0, 3 + number)


def token(request: str = R, place: int = 40) -> Row:
    return Row(f"{request}#0", place, 1, True)


def worker(steps: Sequence[Step], *events: Event) -> Recording:
    return Recording(part="worker", anchor=ANCHOR, events=events, steps=tuple(steps), num_blocks=99)


def whole_pod() -> PodRecording:
    """A picture is read, encoded and answered in three tokens; another request is beside it."""
    encode = Encode((f"{R}#0",), "image", 2.01, 2.5, 72)
    steps = [
        step(0, 2.0, 1.0, [Row(f"{R}#0", 0, 32, False), token(OTHER, 9)], [encode]),
        step(1, 3.0, 0.5, [Row(f"{R}#0", 32, 8, True), token(OTHER, 10)]),
        step(2, 3.6, 0.02, [token(R, 40), token(OTHER, 11)]),
        step(3, 3.62, 0.02, [token(R, 41), Row(f"{R}#0.1", 40, 1, True)]),
    ]
    noted = (
        Event(R, "receive", 1.0, 1.1),
        Event(R, "decode", 1.1, 1.4, {"modality": "image"}),
        Event(R, "queued", 1.6, 1.6, {"prompt_tokens": 40, "image_items": 2}),
        Event(OTHER, "restore", 3.5, 3.59),
        Event(R, "end", 3.64, 3.64, {"reason": "stop"}),
    )
    beside = (
        Event(R, "admission", 0.5, 0.6, {"request_id": "mine"}),
        Event(R, "body", 0.6, 0.7, {"bytes": 1234}),
        Event(R, "first byte", 3.5, 3.5),
        Event(R, "answer", 0.9, 3.7, {"where": "worker", "fault": ""}),
    )
    sidecar = Recording(part="sidecar", anchor=ANCHOR, events=beside)
    return PodRecording(sidecar=sidecar, worker=worker(steps, *noted))
