"""Makes the spans of requests: who begins a trace, who joins one, what belongs to which span.

    chat MODEL         SERVER   one for each request of a client, or of another sidecar
    ├── admission, body, parse
    ├── ask REVISION   CLIENT   another sidecar's `chat` is its child
    └── ask worker     CLIENT   what the worker did is its child, as its timeline has it
        └── tier PLACE          a read of a memory tier

A caller's traceparent is joined, and says whether the request is sampled; others are by the ratio.
Times come from the timeline's clock, so that spans and recordings agree.

Must not know: HTTP, what a request asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from chiasm_contract.config import TracingConfig
from chiasm_contract.timeline import Anchor, Event, Span
from chiasm_contract.trace_context import TraceContext
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)
from opentelemetry.trace import Span as OpenSpan
from opentelemetry.trace import Tracer as OpenTracer

_OWN_PHASES = {"admission", "body", "parse"}


def provider(
    service: str, config: TracingConfig, who: Mapping[str, str], outbox: SpanProcessor
) -> TracerProvider:
    """Makes the spans of one process of the pod."""
    made = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(config.sample_ratio)),
        resource=Resource({**who, "service.name": service}),
        shutdown_on_exit=False,
    )
    made.add_span_processor(outbox)
    return made


class Asking:
    """A CLIENT span: somebody is asked to answer."""

    def __init__(self, span: OpenSpan, anchor: Anchor) -> None:
        self._span = span
        self._anchor = anchor
        self.context = context_of(span)

    def end(self, moment: float, fault: str) -> None:
        """He has, or has not: `fault` says in a word why."""
        if fault:
            fail(self._span, fault)
        self._span.end(self._anchor.to_wall_ns(moment))


class RequestTrace:
    """The trace of one request as this sidecar sees it."""

    def __init__(self, tracer: OpenTracer, span: OpenSpan, anchor: Anchor) -> None:
        self._tracer = tracer
        self._span = span
        self._anchor = anchor
        self.context = context_of(span)
        # Whose children the worker's spans are, once it was asked.
        self.worker: TraceContext | None = None

    @property
    def sampled(self) -> bool:
        """Whether anything is recorded."""
        return self._span.is_recording()

    def set(self, attributes: Mapping[str, Any]) -> None:
        """Say something of the request."""
        self._span.set_attributes(attributes)

    def ask(self, where: str, moment: float) -> Asking | None:
        """Somebody is asked to answer; None where nothing is recorded."""
        if not self.sampled:
            return None
        span = self._tracer.start_span(
            f"ask {where}",
            set_span_in_context(self._span, Context()),
            SpanKind.CLIENT,
            {"chiasm.asked": where},
            start_time=self._anchor.to_wall_ns(moment),
        )
        asking = Asking(span, self._anchor)
        if where == "worker":
            self.worker = asking.context
        return asking

    def end(self, events: Iterable[Event], moment: float, fault: str) -> None:
        """The request has ended; `events` are the sidecar's own notes of it."""
        around = set_span_in_context(self._span, Context())
        for event in events:
            if event.name in _OWN_PHASES:
                span = self._tracer.start_span(
                    event.name, around, start_time=self._anchor.to_wall_ns(event.start)
                )
                span.end(self._anchor.to_wall_ns(event.end))
        if fault:
            fail(self._span, fault)
        self._span.end(self._anchor.to_wall_ns(moment))


class Tracer:
    """Of one pod.

    Args:
        config: the ratio.
        who: what every span says of the pod.
        outbox: where spans go.
    """

    def __init__(
        self, config: TracingConfig, who: Mapping[str, str], outbox: SpanProcessor
    ) -> None:
        self._own = provider("chiasm-sidecar", config, who, outbox).get_tracer("chiasm")
        self._workers = provider("chiasm-worker", config, who, outbox).get_tracer("chiasm")

    def begin(
        self, name: str, parent: TraceContext | None, anchor: Anchor, started: float
    ) -> RequestTrace:
        """A request has come."""
        context = Context() if parent is None else remote(parent)
        start = anchor.to_wall_ns(started)
        span = self._own.start_span(name, context, SpanKind.SERVER, start_time=start)
        return RequestTrace(self._own, span, anchor)

    def workers(self, parent: TraceContext, anchor: Anchor, spans: Iterable[Span]) -> None:
        """What the worker did for a request, whose asking is `parent`."""
        made: list[OpenSpan] = []
        outer = remote(parent)
        for each in spans:
            around = outer if each.parent < 0 else set_span_in_context(made[each.parent], Context())
            span = self._workers.start_span(
                each.name,
                around,
                attributes={f"chiasm.{key}": value for key, value in each.attributes.items()},
                start_time=anchor.to_wall_ns(each.start),
            )
            if each.fault:
                fail(span, each.fault)
            made.append(span)
        # All have begun before the first ends: a child may be named before its parent ends.
        for each, span in zip(spans, made, strict=True):
            span.end(anchor.to_wall_ns(each.end))

    def tier(self, parent: TraceContext, anchor: Anchor, read: Span) -> None:
        """A tier was read for a request."""
        span = self._own.start_span(
            read.name,
            remote(parent),
            SpanKind.CLIENT,
            {f"chiasm.{key}": value for key, value in read.attributes.items()},
            start_time=anchor.to_wall_ns(read.start),
        )
        if read.fault:
            fail(span, read.fault)
        span.end(anchor.to_wall_ns(read.end))


def context_of(span: OpenSpan) -> TraceContext:
    """What others are told of a span."""
    context = span.get_span_context()
    return TraceContext(
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        int(context.trace_flags),
        context.trace_state.to_header(),
    )


def remote(context: TraceContext) -> Context:
    """Below a span of another process."""
    state = TraceState.from_header([context.state]) if context.state else None
    there = SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(context.flags),
        trace_state=state,
    )
    return set_span_in_context(NonRecordingSpan(there), Context())


def fail(span: OpenSpan, fault: str) -> None:
    """Something went wrong within a span."""
    span.set_attribute("error.type", fault)
    span.set_status(Status(StatusCode.ERROR, fault))
