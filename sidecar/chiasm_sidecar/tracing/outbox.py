"""Spans on their way to the collector: a bounded queue, and a thread that empties it.

Requests never wait for it. What does not fit is dropped, what the collector does not take is lost,
and both are counted; a line in the log says when that begins and when it ends.

Must not know: what spans mean.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = logging.getLogger("chiasm.sidecar.tracing")

MAX_SPANS = 4096
BATCH_SPANS = 512
DELAY_SECONDS = 1.0
# How long what still waits may take when the process ends.
_LAST_SECONDS = 2.0
_NOT_TAKEN = (
    "the collector takes no spans, they are lost, and requests go on: does one listen at the "
    "endpoint for OTLP over HTTP?"
)


class Outbox(SpanProcessor):
    """A thread of its own; close it with `shutdown`.

    Args:
        exporter: takes a batch at a time.
        count: told how many spans came to which outcome, from any thread.
        endpoint: where the exporter brings them, for the log.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        count: Callable[[str, int], None],
        endpoint: str,
        max_spans: int = MAX_SPANS,
        delay_seconds: float = DELAY_SECONDS,
    ) -> None:
        self._exporter = exporter
        self._count = count
        self._endpoint = endpoint
        self._max_spans = max_spans
        self._delay_seconds = delay_seconds
        self._spans: deque[ReadableSpan] = deque()
        self._news = threading.Condition()
        self._closed = False
        self._sending = 0
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to do yet."""

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span that has ended, or drop it."""
        with self._news:
            if not self._closed and len(self._spans) < self._max_spans:
                self._spans.append(span)
                if len(self._spans) == BATCH_SPANS:
                    self._news.notify_all()
                return
        self._count("dropped", 1)

    def shutdown(self) -> None:
        """Send what waits, as far as that takes no longer than a moment."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        self._thread.join(_LAST_SECONDS)
        with self._news:
            left = len(self._spans)
            self._spans.clear()
        if left:
            self._count("dropped", left)
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Whether all that waits has been tried within the time."""
        deadline = time.monotonic() + timeout_millis / 1000
        with self._news:
            self._news.notify_all()
            while self._spans or self._sending:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._news.wait(min(left, 0.05))
                self._news.notify_all()
        return True

    def _run(self) -> None:
        while True:
            with self._news:
                if not self._closed and len(self._spans) < BATCH_SPANS:
                    self._news.wait(self._delay_seconds)
                batch = [self._spans.popleft() for _ in range(min(BATCH_SPANS, len(self._spans)))]
                if not batch and self._closed:
                    return
                self._sending = len(batch)
            if batch:
                self._send(batch)
                with self._news:
                    self._sending = 0
                    self._news.notify_all()

    def _send(self, batch: Sequence[ReadableSpan]) -> None:
        try:
            taken = self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception as error:  # nothing of ours may end this thread
            log.error(
                "spans cannot be sent; bug", extra={"fields": {"error": type(error).__name__}}
            )
            taken = False
        self._count("exported" if taken else "failed", len(batch))
        if taken == self._failing:  # it is not as it was
            self._failing = not taken
            words = "the collector takes spans again" if taken else _NOT_TAKEN
            fields = {"endpoint": self._endpoint}
            log.log(logging.INFO if taken else logging.WARNING, words, extra={"fields": fields})
