"""From recordings to tracks.

    POD
    ├── engine      one slice a step, in it schedule, encode, model, sample, update
    ├── between     what the engine did between steps: restore, swap
    ├── sync image  (video, audio) each call of the encoder, with an arrow to the prompt that
    │               waited for it
    ├── blocks used, running, waiting                          counters
    └── ID          one request
        ├── sidecar   admission, body, parse, answer, first and last byte
        ├── worker    receive, hash, decode, process, prompt, fetch, restore, queue
        └── tokens    each chunk of the prompt, each token; a further choice has its own

Must not know: how they are written.
"""

from __future__ import annotations

from collections.abc import Mapping

from chiasm_contract.timeline import (
    BETWEEN_STEPS,
    ENGINE,
    Anchor,
    Encode,
    Event,
    PodRecording,
    Recording,
    Row,
    Step,
    number_of,
    request_of,
)

from chiasm_cli.trace.tracks import Drawing, Path, Slice

_PHASES = ("schedule", "encode", "model", "sample", "update")


def drawing(pods: Mapping[str, PodRecording]) -> Drawing:
    """All tracks of all pods."""
    made = Drawing()
    for pod, recording in pods.items():
        _events(made, pod, recording.sidecar)
        if recording.worker is not None:
            _events(made, pod, recording.worker)
            _Steps(made, pod, recording.worker).draw()
    return made


def _events(made: Drawing, pod: str, recording: Recording) -> None:
    for event in recording.events:
        drawn = _slice(recording.anchor, event)
        if event.request != ENGINE:
            made.add((pod, event.request, recording.part), drawn)
        if event.name in BETWEEN_STEPS:
            made.add((pod, "between"), drawn)


def _slice(anchor: Anchor, event: Event) -> Slice:
    start, end = anchor.to_wall_ns(event.start), anchor.to_wall_ns(event.end)
    return Slice(event.name, start, end, event.details)


class _Steps:
    """Draws a worker's steps, and what each request had of them."""

    def __init__(self, made: Drawing, pod: str, recording: Recording) -> None:
        self._made = made
        self._pod = pod
        self._recording = recording
        self._at = recording.anchor.to_wall_ns
        self._queued = {
            event.request: event for event in recording.events if event.name == "queued"
        }
        self._scheduled: set[str] = set()
        self._begun: set[str] = set()
        self._encoded: dict[tuple[str, str], int] = {}

    def draw(self) -> None:
        for step in self._recording.steps:
            self._draw_step(step)
            arrows = [self._draw_encode(encode) for encode in step.encodes]
            for row in step.rows:
                self._draw_row(step, row, arrows)
            self._draw_counters(step)

    def _draw_step(self, step: Step) -> None:
        times = [self._at(moment) for moment in step[1:7]]
        prefill = sum(row.num_tokens for row in step.rows if row.num_tokens > 1)
        decode = sum(row.num_tokens == 1 for row in step.rows)
        details = {"prefill_tokens": prefill, "decode_tokens": decode, "requests": len(step.rows)}
        path = (self._pod, "engine")
        self._made.add(path, Slice(f"step {step.number}", times[0], times[-1], details))
        for name, start, end in zip(_PHASES, times, times[1:], strict=False):
            if end > start and (name != "encode" or step.encodes):
                self._made.add(path, Slice(name, start, end))

    def _draw_encode(self, encode: Encode) -> tuple[Encode, int]:
        """One call of an encoder, with an arrow to each prompt; returns its first arrow."""
        arrows = tuple(self._made.flow() for _ in encode.choice_ids)
        details = {"items": len(encode.choice_ids), "tokens": encode.num_tokens}
        start, end = self._at(encode.start), self._at(encode.end)
        path = (self._pod, f"sync {encode.modality}")
        self._made.add(path, Slice(f"encode {encode.modality}", start, end, details, arrows))
        return encode, arrows[0]

    def _draw_row(self, step: Step, row: Row, arrows: list[tuple[Encode, int]]) -> None:
        request = request_of(row.choice_id)
        start, end = self._at(step.start), self._at(step.end)
        path = (self._pod, request, _tokens_track(row.choice_id))
        if request not in self._scheduled:
            self._scheduled.add(request)
            self._draw_queue(request, step)
        ends: list[int] = []
        for encode, first in arrows:
            for place, choice_id in enumerate(encode.choice_ids):
                if choice_id == row.choice_id:
                    ends.append(first + place)
                    key = (request, encode.modality)
                    self._encoded[key] = self._encoded.get(key, 0) + 1
            if row.choice_id in encode.choice_ids:
                name = f"encode {encode.modality}"
                self._made.add(path, Slice(name, self._at(encode.start), self._at(encode.end)))
        name = f"prefill {row.num_tokens}" if row.num_tokens > 1 else "token"
        details = {"step": step.number, "first_token": row.start, "samples": int(row.samples)}
        self._made.add(path, Slice(name, start, end, details, ends=tuple(ends)))
        if row.samples and request not in self._begun:
            self._begun.add(request)
            self._draw_hits(request, path, step)

    def _draw_queue(self, request: str, step: Step) -> None:
        queued = self._queued.get(request)
        if queued is not None:
            start, end = self._at(queued.end), self._at(step.start)
            path = (self._pod, request, "worker")
            self._made.add(path, Slice("queue", start, max(start, end), queued.details))

    def _draw_hits(self, request: str, path: Path, step: Step) -> None:
        """What the prompt had of its media without an encoder."""
        queued = self._queued.get(request)
        for key, count in (queued.details if queued else {}).items():
            modality = key.removesuffix("_items")
            hits = int(count) - self._encoded.get((request, modality), 0)
            if modality != key and hits > 0:
                moment = self._at(step.start)
                self._made.add(path, Slice(f"hit {modality}", moment, moment, {"items": hits}))

    def _draw_counters(self, step: Step) -> None:
        moment = self._at(step.end)
        self._made.count((self._pod, "blocks used"), moment, step.used_blocks)
        self._made.count((self._pod, "running"), moment, step.num_running)
        self._made.count((self._pod, "waiting"), moment, step.num_waiting)


def _tokens_track(choice_id: str) -> str:
    """Choices of one request run beside each other, so that each has its own track."""
    number = number_of(choice_id)
    return f"tokens {number}" if number else "tokens"
