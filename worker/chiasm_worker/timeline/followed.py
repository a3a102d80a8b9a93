"""What a trace shows of one request, added up while it runs: bounded, however long it runs.

A request of thousands of tokens takes part in thousands of steps; what is kept is its events, the
chunks of its prompt, its encoder calls, and of its tokens the first, the last and the longest gap.

Must not know: where events come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chiasm_contract.timeline import Detail, Encode, Event, Row, Step

_MAX_EVENTS = 256
_MAX_CHUNKS = 64


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the prompt that was computed in one step."""

    choice_id: str
    start: float
    end: float
    first_token: int
    num_tokens: int


@dataclass(slots=True)
class Decoding:
    """The tokens of one choice, as its steps ended."""

    first: float
    last: float
    num_tokens: int = 1
    longest_gap: float = 0.0

    def token(self, end: float) -> None:
        """One more."""
        self.longest_gap = max(self.longest_gap, end - self.last)
        self.last = end
        self.num_tokens += 1


@dataclass(slots=True)
class Followed:
    """One request."""

    request: str
    trace: bytes = b""
    events: list[Event] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    num_chunks: int = 0
    encodes: list[Encode] = field(default_factory=list)
    decodings: dict[str, Decoding] = field(default_factory=dict)
    began: float | None = None  # its first step

    def add(self, event: Event) -> None:
        """Something happened to it."""
        # The end is worth more than one more file.
        if len(self.events) < _MAX_EVENTS or event.name in {"end", "failed"}:
            self.events.append(event)

    def encode(self, encode: Encode) -> None:
        """An encoder ran for it."""
        if len(self.encodes) < _MAX_EVENTS:
            self.encodes.append(encode)

    def chunk(self, step: Step, row: Row) -> None:
        """A step computed some of it."""
        if self.began is None:
            self.began = step.start
        decoding = self.decodings.get(row.choice_id)
        if decoding is None or row.num_tokens > 1:
            self.num_chunks += 1
            if len(self.chunks) < _MAX_CHUNKS:
                self.chunks.append(
                    Chunk(row.choice_id, step.start, step.end, row.start, row.num_tokens)
                )
        if row.samples and decoding is None:
            self.decodings[row.choice_id] = Decoding(step.end, step.end)
        elif row.samples and decoding is not None:
            decoding.token(step.end)

    def first(self, name: str) -> Event | None:
        """The first event of a name."""
        return next((event for event in self.events if event.name == name), None)

    def details(self, name: str) -> Mapping[str, Detail]:
        """Those of the first event of a name."""
        event = self.first(name)
        return {} if event is None else event.details
