"""One request as far as it has come: what is known of it, and what was sent back."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field
from http import HTTPStatus

from chiasm_contract.configuration import Configuration
from chiasm_contract.errors import ChiasmError
from chiasm_contract.messages import FinishEvent, TokenEvent, Usage
from chiasm_contract.names import CONVERSATION_HEADER
from chiasm_contract.trace_context import TRACEPARENT, TRACERESPONSE, TraceContext
from starlette.types import Receive, Send

from chiasm_sidecar.front_door import faults
from chiasm_sidecar.front_door.answers import fault_event
from chiasm_sidecar.recording.timeline import Notes, Timeline
from chiasm_sidecar.tenants.gate import ANONYMOUS, Caller
from chiasm_sidecar.tracing.tracer import RequestTrace
from chiasm_sidecar.traffic.counting import Timing
from chiasm_sidecar.traffic.division import Given
from chiasm_sidecar.traffic.observer import measures

REQUEST_ID_HEADER = b"x-request-id"

_CONVERSATION_HEADER = CONVERSATION_HEADER.encode()
_TRACERESPONSE = TRACERESPONSE.encode()
_JSON = (b"content-type", b"application/json")
_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


@dataclass
class Exchange:
    """For metrics and the access log; `status` is what became of it, also after a stream began."""

    receive: Receive
    send: Send
    request_id: str = ""
    answer_id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    started: float = field(default_factory=time.perf_counter)
    status: int = int(HTTPStatus.OK)
    modality: str = "unknown"
    user: str | None = None
    caller: Caller = ANONYMOUS
    finish: FinishEvent | None = None  # of the choice that ended last
    usage: Usage | None = None
    response_started: bool = False
    first_text: float | None = None  # when it came from the worker
    last_text: float = 0.0
    is_handed_over: bool = False  # another sidecar asks, for its client
    given: Given | None = None
    timeline: InitVar[Timeline | None] = None
    notes: Notes = field(init=False)
    finish_reasons: list[str] = field(default_factory=list)
    trace: RequestTrace | None = None
    # The caller's, where no spans are made: for the log.
    caller_trace: TraceContext | None = None

    def __post_init__(self, timeline: Timeline | None) -> None:
        self.notes = Notes(self.answer_id, timeline or Timeline())

    @property
    def context(self) -> TraceContext | None:
        """Of which trace the request is; none of it is recorded here unless it says so."""
        return self.caller_trace if self.trace is None else self.trace.context

    @property
    def trace_id(self) -> str | None:
        """By which a person finds what is recorded of the request; None: nothing is."""
        return self.trace.context.trace_id if self.trace and self.trace.sampled else None

    def told(self, context: TraceContext | None) -> dict[str, str]:
        """By which names the worker knows the request in its log."""
        named = {REQUEST_ID_HEADER.decode(): self.request_id}
        return named if context is None else {**named, TRACEPARENT: context.header}

    def note_admission(self) -> None:
        """Who asks is known, or why nobody may."""
        trace_id = self.context.trace_id if self.context else ""
        named = {"request_id": self.request_id, "trace_id": trace_id}
        self.notes.since(self.started, "admission", **named)

    @contextmanager
    def attempt(self, where: str) -> Iterator[TraceContext | None]:
        """Somebody is asked to answer: the worker, or another revision. Notes how long it takes;
        yields of which span what he does is a part."""
        started, fault = self.notes.now(), ""
        asking = None if self.trace is None else self.trace.ask(where, started)
        try:
            yield self.context if asking is None else asking.context
        except BaseException as error:
            fault = type(error).__name__
            raise
        finally:
            ended = self.notes.since(started, "answer", where=where, fault=fault)
            if asking is not None:
                asking.end(ended, fault)

    @property
    def is_complete(self) -> bool:
        """Whether every choice of the answer has ended."""
        return self.usage is not None

    def note_finish(self, event: FinishEvent) -> None:
        """A choice has ended."""
        self.finish, self.usage = event, event.usage
        self.finish_reasons.append(event.reason)
        if self.given is not None and self.given.keeps_text:
            self.given.observed.texts.setdefault(event.index, [])
        if self.given is not None and event.usage is not None:
            observed = self.given.observed
            observed.whole = True
            observed.num_tokens = event.usage.completion_tokens
            observed.timing = self._timing(self.given.attempt.started)

    def note_text(self, batch: list[TokenEvent | FinishEvent], now: float) -> None:
        """The worker sent text."""
        if self.first_text is None:
            self.first_text = now
        self.last_text = now
        if self.given is not None and self.given.keeps_text:
            for event in batch:
                if isinstance(event, TokenEvent):
                    self.given.observed.texts.setdefault(event.index, []).append(event.text)

    def _timing(self, started: float) -> Timing | None:
        """Of the worker's whole answer, for whom the request began at `started`."""
        if self.first_text is None or self.usage is None:
            return None
        gaps = self.usage.completion_tokens - 1
        mean = (self.last_text - self.first_text) / gaps if gaps > 0 else None
        return Timing(self.first_text - started, mean)

    def measures(self) -> bytes | None:
        """What the sidecar that handed this request over wants to know of a whole answer."""
        timing = self._timing(self.started) if self.is_handed_over else None
        if timing is None or self.usage is None:
            return None
        return measures(self.usage.completion_tokens, timing)

    async def start_stream(self) -> None:
        """Send the head of a stream of events."""
        await self._start(HTTPStatus.OK, *_STREAM_HEADERS)

    async def send_events(self, data: bytes, more: bool) -> None:
        """Send a piece of the stream."""
        await self.send({"type": "http.response.body", "body": data, "more_body": more})
        if not more:
            self.notes.instant("last byte", status=self.status)

    async def send_json(self, status: int, data: bytes, *headers: tuple[bytes, bytes]) -> None:
        """Send the whole response."""
        length = (b"content-length", str(len(data)).encode())
        await self._start(status, _JSON, length, *headers)
        await self.send_events(data, more=False)

    async def refuse(self, error: ChiasmError) -> None:
        """Send a fault: as the response, or as the last event of a stream that has begun."""
        status = faults.status_of(error)
        if self.response_started:
            self.status = status
            await self.send_events(fault_event(error), more=False)
            return
        headers = [(k.encode(), v.encode()) for k, v in faults.headers_of(error).items()]
        await self.send_json(status, faults.body_of(error, status), *headers)

    def log_fields(self, seconds: float, configuration: Configuration | None) -> dict[str, object]:
        """Its line in the access log: who, where, how much and how long, never what."""
        fields: dict[str, object] = {
            "request_id": self.request_id,
            "answer_id": self.answer_id,
            "status": self.status,
            "modality": self.modality,
            "seconds": round(seconds, 4),
        }
        if configuration is not None:
            fields["environment"] = configuration.environment
        if self.usage is not None:
            fields |= self.usage.model_dump()
        if self.caller.tenant is not None:
            fields["tenant"] = self.caller.tenant
        if self.user is not None:
            fields["user"] = self.user
        if self.given is not None:
            fields |= {"revision": self.given.place.revision, "by": self.given.route.reason}
        return fields

    async def _start(self, status: int, *headers: tuple[bytes, bytes]) -> None:
        self.status = int(status)
        self.response_started = True
        self.notes.instant("first byte", status=self.status)
        every = list(headers)
        if self.request_id:
            every.append((REQUEST_ID_HEADER, self.request_id.encode()))
        if self.given is not None and (conversation := self.given.conversation) is not None:
            every.append((_CONVERSATION_HEADER, conversation.encode()))
        if self.trace is not None and self.trace.sampled:
            every.append((_TRACERESPONSE, self.trace.context.header.encode()))
        await self.send({"type": "http.response.start", "status": self.status, "headers": every})
