"""A span for each pass over a resource, where a collector is named; else passes are what they were.

Spans say which resource and how it ended, never what is in it: an error's words may quote a
manifest.

Must not know: what a pass does.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields

from chiasm_contract import logs
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import Status, StatusCode, Tracer

from chiasm_operator.leadership.fence import Deposed
from chiasm_operator.passes import Pass, Rest

_EXPORT_TIMEOUT_SECONDS = 5.0
_MAX_WAITING_SPANS = 2048


def provider(endpoint: str, sample_ratio: float, identity: str, version: str) -> TracerProvider:
    """Sends spans to v1/traces below `endpoint`, from a thread of its own; `shutdown` ends it."""
    # A collector that is away would be told of at every attempt.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    exporter = OTLPSpanExporter(
        endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=_EXPORT_TIMEOUT_SECONDS
    )
    made = TracerProvider(
        sampler=TraceIdRatioBased(sample_ratio),
        resource=Resource(
            {
                "service.name": "chiasm-operator",
                "service.namespace": "chiasm",
                "service.version": version,
                "service.instance.id": identity,
            }
        ),
        shutdown_on_exit=False,
    )
    processor = BatchSpanProcessor(
        exporter, max_queue_size=_MAX_WAITING_SPANS, schedule_delay_millis=1000
    )
    made.add_span_processor(processor)
    return made


@dataclass(frozen=True)
class TracedPass(Pass):
    """A pass, seen by a collector."""

    tracer: Tracer | None = None

    @classmethod
    def of(cls, one: Pass, tracer: Tracer) -> TracedPass:
        """The same pass, traced."""
        known = {field.name: getattr(one, field.name) for field in fields(Pass)}
        return cls(**known, tracer=tracer)

    async def run(self, namespace: str, name: str) -> Rest | None:
        """Do one pass within a span."""
        if self.tracer is None:
            return await super().run(namespace, name)
        attributes = {"k8s.namespace.name": namespace, "chiasm.resource": name}
        span = self.tracer.start_span("reconcile", attributes=attributes)
        recorded = span.is_recording()
        logs.bind(trace_id=f"{span.get_span_context().trace_id:032x}" if recorded else None)
        try:
            rest = await super().run(namespace, name)
        except Exception as error:
            span.set_attribute("error.type", type(error).__name__)
            if not isinstance(error, Deposed):  # another one goes on with it
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise
        else:
            if rest is None:
                span.set_attribute("chiasm.outcome", "gone")
            else:
                span.set_attribute("chiasm.outcome", "settled" if rest.settled else "unsettled")
                span.set_attribute("chiasm.acted", rest.acted)
            return rest
        finally:
            span.end()
