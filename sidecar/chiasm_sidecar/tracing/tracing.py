"""All that a sidecar does about traces, put together: begun and ended with the process.

What the worker did is asked for once a request has ended, beside the answers: nobody waits for it.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
from collections.abc import Mapping

from chiasm_contract import trace_context
from chiasm_contract.config import SidecarConfig, TracingConfig
from chiasm_contract.ending import end
from chiasm_contract.errors import ChiasmError
from chiasm_contract.timeline import Span
from chiasm_contract.trace_context import TraceContext
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from chiasm_sidecar.metrics import Metrics
from chiasm_sidecar.recording.timeline import Timeline
from chiasm_sidecar.tracing import attributes
from chiasm_sidecar.tracing.outbox import Outbox
from chiasm_sidecar.tracing.tracer import RequestTrace, Tracer
from chiasm_sidecar.worker_client import WorkerClient

TRACES_PATH = "/v1/traces"
_EXPORT_TIMEOUT_SECONDS = 5.0
# Requests whose worker's part is being asked for; one more goes without.
MAX_COLLECTING = 64
_COLLECT_SECONDS = 5.0


class Tracing:
    """Use as an async context manager."""

    def __init__(
        self,
        config: TracingConfig,
        sidecar: SidecarConfig,
        pod: str,
        timeline: Timeline,
        metrics: Metrics,
        worker: WorkerClient,
    ) -> None:
        self._model_id = sidecar.model_id
        self._timeline = timeline
        self._metrics = metrics
        self._worker = worker
        # It would say of each failure what the outbox says of the first.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        endpoint = config.endpoint.rstrip("/") + TRACES_PATH
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_TIMEOUT_SECONDS)
        self.outbox = Outbox(exporter, self._count, endpoint)
        self._tracer = Tracer(config, _who(sidecar, pod), self.outbox)
        self._collecting: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Tracing:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._collecting:
            await asyncio.wait(self._collecting, timeout=_COLLECT_SECONDS)
        await end(self._collecting)
        await asyncio.to_thread(self.outbox.shutdown)

    def begin(self, headers: Mapping[str, str], started: float) -> RequestTrace:
        """A request has come, whose first byte was there at `started`."""
        parent = trace_context.parse(headers)
        name = f"{attributes.OPERATION} {self._model_id}"
        trace = self._tracer.begin(name, parent, self._timeline.anchor(), started)
        if trace.sampled:
            trace.set(attributes.of_begin(self._model_id))
        return trace

    def collect(self, answer_id: str, parent: TraceContext) -> None:
        """Ask the worker what it did for a request that has ended."""
        if len(self._collecting) >= MAX_COLLECTING:
            self._count("dropped", 1)
            return
        task = asyncio.create_task(self._collect(answer_id, parent))
        self._collecting.add(task)
        task.add_done_callback(self._collecting.discard)

    async def _collect(self, answer_id: str, parent: TraceContext) -> None:
        try:
            told = await self._worker.spans(answer_id)
        except ChiasmError:
            self._count("failed", 1)
            return
        self._tracer.workers(parent, told.anchor, told.spans)

    def tier(self, parent: TraceContext, read: Span) -> None:
        """A tier was read for a request."""
        self._tracer.tier(parent, self._timeline.anchor(), read)

    def _count(self, outcome: str, num_spans: int) -> None:
        self._metrics.count("chiasm_trace_spans_total", num_spans, outcome=outcome)


def _who(sidecar: SidecarConfig, pod: str) -> dict[str, str]:
    """What every span says of this pod."""
    known = {
        "service.namespace": "chiasm",
        "service.version": importlib.metadata.version("chiasm"),
        "service.instance.id": pod,
        "k8s.pod.name": pod if sidecar.revision else "",
        "chiasm.revision": sidecar.revision,
        "chiasm.environment": sidecar.configuration.environment if sidecar.configuration else "",
    }
    return {name: value for name, value in known.items() if value}
