"""What worker and sidecar note of requests and steps, as they give it to who looks after a pod.

Times are seconds of the noting process's own monotonic clock; a recording's `Anchor` says what the
wall clock showed at one of them, so that recordings of several processes can be laid side by side.

No text, no token ids and no byte of a file is in here: names, identifiers, counts and times. The
tuples travel as JSON arrays.

Must not know: who notes, who draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict

from chiasm_contract.errors import InvalidRequest

# Of the whole engine, not of one request.
ENGINE = ""
MAX_LAST_SECONDS = 600.0
DEFAULT_LAST_SECONDS = 60.0

EventName = Literal[
    # sidecar
    "admission",  # from the first header to who asks and whether he may
    "body",  # until the last byte of the request
    "parse",  # until its files are checked
    "answer",  # one attempt to have it answered, by this pod's worker or by another sidecar
    "first byte",  # of the answer, sent
    "last byte",
    # worker
    "receive",  # from the sidecar
    "hash",  # a file's digest
    "seen",  # a file that was read before: nothing of it is decoded
    "decode",  # to canonical pixels, frames or samples, with their digest
    "process",  # to what the encoder takes
    "prompt",  # template and tokens
    "fetch",  # from the tiers into slots
    "restore",  # from slots into the pool; the engine does nothing else meanwhile
    "queued",
    "failed",
    "end",
    # worker, of the whole engine
    "swap",
]
# What the engine's thread does between two steps, while every request waits.
BETWEEN_STEPS: frozenset[EventName] = frozenset({"restore", "swap"})
EVENT_NAMES: tuple[str, ...] = get_args(EventName)
Detail = str | int | float


class Event(NamedTuple):
    """Something that a request, or the engine, spent time on; `end` is `start` for an instant."""

    request: str
    name: EventName
    start: float
    end: float
    details: Mapping[str, Detail] = {}


class Row(NamedTuple):
    """Tokens start..start+num_tokens-1 of one choice, computed in a step.

    `samples`: the step chose this choice's next token.
    """

    choice_id: str
    start: int
    num_tokens: int
    samples: bool


class Encode(NamedTuple):
    """One call of an encoder, for one item of each of these choices."""

    choice_ids: tuple[str, ...]
    modality: str
    start: float
    end: float
    num_tokens: int


class Step(NamedTuple):
    """One step of the engine: schedule, encode, model, sample, update, in this order.

    Each time is the end of that phase; `num_running`, `num_waiting` and `used_blocks` are those
    after the step.
    """

    number: int
    start: float
    scheduled: float
    encoded: float
    computed: float
    sampled: float
    end: float
    rows: tuple[Row, ...]
    encodes: tuple[Encode, ...]
    num_running: int
    num_waiting: int
    used_blocks: int

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step."""
        return sum(row.num_tokens for row in self.rows)


class Span(NamedTuple):
    """A part of a request's time in the worker, for a trace; `parent` is a place in the list of
    spans, -1: the request itself. `fault`: what went wrong, a word or two; empty: nothing did."""

    name: str
    start: float
    end: float
    parent: int
    attributes: Mapping[str, Detail]
    fault: str = ""


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Anchor(_Message):
    """One moment on a process's clock and on the wall's."""

    clock_seconds: float
    wall_ns: int

    def to_wall_ns(self, clock_seconds: float) -> int:
        """The wall's time at a moment of the process's clock."""
        return self.wall_ns + round((clock_seconds - self.clock_seconds) * 1e9)


class Recording(_Message):
    """What one process noted.

    Attributes:
        num_blocks: of the pool; 0 where there is none.
        is_whole: whether nothing of what was asked for has been forgotten already.
    """

    part: Literal["worker", "sidecar"]
    anchor: Anchor
    events: tuple[Event, ...] = ()
    steps: tuple[Step, ...] = ()
    num_blocks: int = 0
    is_whole: bool = True


class PodRecording(_Message):
    """GET /-/timeline of a sidecar: both processes of a pod; None: the worker is away."""

    sidecar: Recording
    worker: Recording | None = None


class RequestSpans(_Message):
    """GET /spans of the worker: one request that was asked with a sampled trace."""

    anchor: Anchor
    spans: tuple[Span, ...] = ()


def last_seconds(query: Mapping[str, str]) -> float:
    """What a question for a timeline says in `last_seconds`.

    Raises: InvalidRequest.
    """
    try:
        seconds = float(query.get("last_seconds", DEFAULT_LAST_SECONDS))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MAX_LAST_SECONDS:
        raise InvalidRequest(
            f"last_seconds is not above 0 and at most {MAX_LAST_SECONDS:g}; give a number of "
            "seconds, or request=ID instead.",
            param="last_seconds",
        )
    return seconds


def choice_id(request: str, serial: int, choice: int) -> str:
    """What the engine calls one choice of a request."""
    return f"{request}#{serial}.{choice}" if choice else f"{request}#{serial}"


def number_of(choice: str) -> int:
    """Which choice of its request one is."""
    return int(choice.rpartition("#")[2].partition(".")[2] or 0)


def request_of(choice: str) -> str:
    """The request of a choice."""
    return choice.rpartition("#")[0] or choice
