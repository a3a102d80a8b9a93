"""Where the time went, and which tokens came late because of what.

Judges one worker's recording. A token is late when it comes more than `JITTER_SECONDS` after the
one before it: at 30 tokens a second a person sees the text halt. The reason is whatever took the
largest part of the time between the two.

Must not know: pods, formats.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from chiasm_contract.timeline import (
    BETWEEN_STEPS,
    Event,
    PodRecording,
    Recording,
    Step,
    request_of,
)

JITTER_SECONDS = 0.033
_MAX_LATE_SHOWN = 20

# Operators in the words of the report.
PREFILL = "prefill of other requests"
OWN_PREFILL = "its own prompt, computed again"
DECODE = "decoding"
ENCODE = "encoder"
RESTORE = "blocks from a tier"
SWAP = "swap of weights"
ELSEWHERE = "steps without it (preempted, or another model's turn)"
BOOKS = "scheduling, sampling and bookkeeping"
OUTSIDE = "outside of steps"


@dataclass(frozen=True)
class Late:
    """A token that came late.

    Attributes:
        step: the number of the step that chose it.
        parts: operator -> seconds between the token before and this one.
        prefill_tokens: of other requests in the steps between.
    """

    choice_id: str
    token: int
    seconds: float
    step: int
    parts: Mapping[str, float]
    prefill_tokens: int

    @property
    def reason(self) -> str:
        """The operator that took the most."""
        return max(self.parts, key=lambda name: self.parts[name])


@dataclass(frozen=True)
class Spot:
    """A part of the time that was looked at."""

    name: str
    seconds: float
    share: float
    count: int


def late_tokens(recording: Recording, limit_seconds: float = JITTER_SECONDS) -> list[Late]:
    """All tokens that came late, the latest first."""
    between = [event for event in recording.events if event.name in BETWEEN_STEPS]
    found: list[Late] = []
    last: dict[str, tuple[int, int]] = {}  # choice -> place of the step of its last token, number
    for place, step in enumerate(recording.steps):
        for row in step.rows:
            if not row.samples:
                continue
            before, number = last.get(row.choice_id, (-1, -1))
            last[row.choice_id] = (place, number + 1)
            if before < 0:
                continue
            seconds = step.end - recording.steps[before].end
            if seconds > limit_seconds:
                window = recording.steps[before : place + 1]
                found.append(_late(row.choice_id, number + 1, window, between))
    return sorted(found, key=lambda late: -late.seconds)


def _late(choice_id: str, token: int, window: Sequence[Step], between: Iterable[Event]) -> Late:
    """Of the steps between two tokens of a choice, the first of which brought the one before."""
    since, until = window[0].end, window[-1].end
    parts: dict[str, float] = defaultdict(float)
    prefill_tokens = 0
    for step in window[1:]:
        for name, amount in operators(step, choice_id).items():
            parts[name] += amount
        prefill_tokens += sum(
            row.num_tokens for row in step.rows if row.num_tokens > 1 and row.choice_id != choice_id
        )
    for event in between:
        overlap = min(event.end, until) - max(event.start, since)
        if overlap > 0:
            parts[RESTORE if event.name == "restore" else SWAP] += overlap
    parts[OUTSIDE] += max(0.0, until - since - sum(parts.values()))
    return Late(choice_id, token, until - since, window[-1].number, dict(parts), prefill_tokens)


def operators(step: Step, choice_id: str) -> Mapping[str, float]:
    """Operator -> seconds of a step, as one choice sees it."""
    own = next((row for row in step.rows if row.choice_id == choice_id), None)
    if own is None:
        return {ELSEWHERE: step.end - step.start}
    others_prefill = any(row.num_tokens > 1 for row in step.rows if row is not own)
    model = step.computed - step.encoded
    encode = step.encoded - step.scheduled if step.encodes else 0.0
    kind = PREFILL if others_prefill else OWN_PREFILL if own.num_tokens > 1 else DECODE
    rest = step.end - step.start - model - encode
    return {kind: model, ENCODE: encode, BOOKS: rest}


def hot_spots(recording: Recording) -> list[Spot]:
    """What the engine's time was spent on, the most first; waiting for work is no part of it."""
    seconds: dict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()

    def spend(name: str, amount: float) -> None:
        if amount > 0:
            seconds[name] += amount
            counts[name] += 1

    busy_since: float | None = None
    for step in recording.steps:
        if busy_since is not None:
            spend("between steps, with requests waiting", step.start - busy_since)
        spend("schedule", step.scheduled - step.start)
        for encode in step.encodes:
            spend(f"encode {encode.modality}", encode.end - encode.start)
        mixed = any(row.num_tokens > 1 for row in step.rows)
        spend("model, steps with prompts" if mixed else "model, steps of tokens only",
              step.computed - step.encoded)  # fmt: skip
        spend("sample", step.sampled - step.computed)
        spend("update", step.end - step.sampled)
        busy_since = step.end if step.num_running + step.num_waiting else None
    total = sum(seconds.values())
    spots = [Spot(n, s, s / total, counts[n]) for n, s in seconds.items()]
    return sorted(spots, key=lambda spot: -spot.seconds)


def waits(recordings: Iterable[Recording]) -> list[Spot]:
    """What requests spent their time on before their first token, the most first."""
    seconds: dict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    for recording in recordings:
        began = _first_steps(recording.steps)
        for event in recording.events:
            amount = event.end - event.start
            if event.name == "queued":
                amount = began.get(event.request, event.end) - event.end
            if amount > 0 and event.name not in {"answer", "swap"}:
                name: str = "queue" if event.name == "queued" else event.name
                modality = event.details.get("modality")
                if modality and event.name != "parse":
                    name = f"{name} {modality}"
                seconds[name] += amount
                counts[name] += 1
    total = sum(seconds.values())
    spots = [Spot(n, s, s / total, counts[n]) for n, s in seconds.items()]
    return sorted(spots, key=lambda spot: -spot.seconds)


def _first_steps(steps: Iterable[Step]) -> dict[str, float]:
    began: dict[str, float] = {}
    for step in steps:
        for row in step.rows:
            began.setdefault(request_of(row.choice_id), step.start)
    return began


def lines(pod: str, recording: PodRecording) -> list[str]:
    """The report on one pod."""
    parts = [recording.sidecar] + ([recording.worker] if recording.worker else [])
    text = [f"{pod}"]
    if (words := _unasked(recording)) is not None:
        return [*text, f"  {words}", *_table("Before the first token", waits([recording.sidecar]))]
    if recording.worker is None:
        text.append("  The worker is away: only what the sidecar noted is here.")
    if not all(part.is_whole for part in parts):
        text.append("  What is older has been forgotten: ask for less, or sooner.")
    if recording.worker is not None:
        text += _table("Hot spots of the engine", hot_spots(recording.worker))
    text += _table("Before the first token", waits(parts))
    if recording.worker is not None:
        text += _late_lines(late_tokens(recording.worker))
    return text


def _unasked(recording: PodRecording) -> str | None:
    """Who was asked instead, of requests that this pod's worker was not; None: it was, or nothing
    is known."""
    theirs = recording.worker
    if theirs is None or theirs.events or theirs.steps or not recording.sidecar.events:
        return None
    asked = {e.details.get("where") for e in recording.sidecar.events if e.name == "answer"}
    if "worker" in asked:
        return None
    if asked:
        return f"{' and '.join(sorted(map(str, asked)))} was asked: see the report of its pod."
    return "The worker was not asked."


def _table(title: str, spots: Sequence[Spot]) -> list[str]:
    if not spots:
        return [f"  {title}: nothing was done."]
    rows = [
        f"    {spot.share:6.1%}  {spot.seconds * 1000:10.1f} ms  {spot.count:6d} x  {spot.name}"
        for spot in spots
    ]
    return [f"  {title}:", *rows]


def _late_lines(late: Sequence[Late]) -> list[str]:
    limit = f"{JITTER_SECONDS * 1000:.0f} ms"
    if not late:
        return [f"  No token came more than {limit} after the one before it."]
    reasons = Counter(each.reason for each in late)
    summary = ", ".join(f"{count} by {reason}" for reason, count in reasons.most_common())
    text = [f"  {len(late)} tokens came more than {limit} after the one before: {summary}."]
    for each in late[:_MAX_LATE_SHOWN]:
        part = each.parts[each.reason]
        text.append(
            f"    {each.seconds * 1000:8.1f} ms  {each.choice_id} token {each.token}: "
            f"{part * 1000:.1f} ms {each.reason} (step {each.step}"
            + (f", {each.prefill_tokens} prompt tokens of others)" if each.prefill_tokens else ")")
        )
    return text
