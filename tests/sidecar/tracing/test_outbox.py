"""Spans wait in bounded memory; what becomes of each is counted, and nobody waits for it."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence

import pytest
from chiasm_sidecar.tracing.outbox import BATCH_SPANS, Outbox
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult


class Exporter(SpanExporter):
    """Takes spans when it may."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.may = threading.Event()
        self.may.set()
        self.result = SpanExportResult.SUCCESS
        self.error: Exception | None = None
        self.is_shut = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.may.wait(20)
        if self.error is not None:
            raise self.error
        self.batches.append(len(spans))
        return self.result

    def shutdown(self) -> None:
        self.is_shut = True


def outbox(exporter: Exporter, **changes: float) -> tuple[Outbox, Counter[str]]:
    counts: Counter[str] = Counter()
    lock = threading.Lock()

    def count(outcome: str, num_spans: int) -> None:
        with lock:
            counts[outcome] += num_spans

    return Outbox(exporter, count, "http://there:4318", **changes), counts  # type: ignore[arg-type]


def test_all_are_sent_in_batches() -> None:
    exporter = Exporter()
    box, counts = outbox(exporter)
    for _ in range(BATCH_SPANS + 10):
        box.on_end(ReadableSpan("s"))
    assert box.force_flush()
    assert counts == {"exported": BATCH_SPANS + 10}
    assert max(exporter.batches) <= BATCH_SPANS
    box.shutdown()
    assert exporter.is_shut


def test_what_does_not_fit_is_dropped() -> None:
    exporter = Exporter()
    exporter.may.clear()
    box, counts = outbox(exporter, max_spans=5, delay_seconds=0.001)
    for _ in range(100):
        box.on_end(ReadableSpan("s"))
    # What the thread has taken makes room for as many.
    assert 100 - 2 * 5 <= counts["dropped"] <= 95
    exporter.may.set()
    assert box.force_flush()
    assert counts.total() == 100
    box.shutdown()


@pytest.mark.parametrize("error", [None, ValueError("words of a client")])
def test_a_collector_that_takes_none_ends_nothing(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    exporter = Exporter()
    exporter.result, exporter.error = SpanExportResult.FAILURE, error
    box, counts = outbox(exporter, delay_seconds=0.001)
    for number in range(3):
        box.on_end(ReadableSpan("s"))
        assert box.force_flush()
        assert counts == {"failed": number + 1}
    exporter.result, exporter.error = SpanExportResult.SUCCESS, None
    box.on_end(ReadableSpan("s"))
    assert box.force_flush()
    assert counts == {"failed": 3, "exported": 1}
    box.shutdown()
    said = [record for record in caplog.records if "collector" in record.message]
    assert [record.levelname for record in said] == ["WARNING", "INFO"]
    assert "does one listen" in said[0].message
    assert all(record.__dict__["fields"] == {"endpoint": "http://there:4318"} for record in said)
    assert "client" not in caplog.text


def test_the_end_sends_what_waits() -> None:
    exporter = Exporter()
    box, counts = outbox(exporter, delay_seconds=60.0)
    box.on_end(ReadableSpan("s"))
    box.shutdown()
    box.on_end(ReadableSpan("late"))
    assert counts == {"exported": 1, "dropped": 1}


def test_the_end_does_not_wait_for_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chiasm_sidecar.tracing.outbox._LAST_SECONDS", 0.05)
    exporter = Exporter()
    exporter.may.clear()
    box, counts = outbox(exporter, delay_seconds=0.001)
    for _ in range(3 * BATCH_SPANS):
        box.on_end(ReadableSpan("s"))
    box.shutdown()
    assert counts["dropped"] >= BATCH_SPANS
    exporter.may.set()
