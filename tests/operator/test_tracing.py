"""A span for each pass, as a real collector receives it; its end and the log of that pass."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from chiasm_contract import logs
from chiasm_operator.cluster import Cluster
from chiasm_operator.leadership.fence import Deposed
from chiasm_operator.passes import Pass
from chiasm_operator.podstate import PodStates
from chiasm_operator.resource import Images
from chiasm_operator.settings import Settings
from chiasm_operator.tracing import TracedPass, provider
from opentelemetry.sdk.trace import TracerProvider

from tests.sidecar.tracing.collector import Collector, collecting

CANARY = "zanzibar"


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as running:
        yield running


class Asked:
    """A cluster that is asked for one resource only."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer

    def resource_of(self, namespace: str, name: str) -> Any:
        return self._answer()


def one_pass(answer: Callable[[], Any], spans: TracerProvider) -> TracedPass:
    images = Images("w", "s", "p", "Never", "a")
    plain = Pass(cast("Cluster", Asked(answer)), cast("PodStates", None), images, lambda: "now")
    return TracedPass.of(plain, spans.get_tracer("chiasm"))


async def passed(collector: Collector, answer: Callable[[], Any], ratio: float = 1.0) -> None:
    spans = provider(collector.url, ratio, "operator-0", "0.1.0")
    try:
        await one_pass(answer, spans).run("vision", "shelf-reader")
    finally:
        await asyncio.to_thread(spans.shutdown)


async def test_a_pass_is_a_span(collector: Collector) -> None:
    await passed(collector, lambda: None)
    span = collector.one("reconcile")
    assert span.attributes == {
        "k8s.namespace.name": "vision",
        "chiasm.resource": "shelf-reader",
        "chiasm.outcome": "gone",
    }
    assert span.resource == {
        "service.name": "chiasm-operator",
        "service.namespace": "chiasm",
        "service.version": "0.1.0",
        "service.instance.id": "operator-0",
    }
    assert not span.failed


@pytest.mark.parametrize(("error", "fails"), [(ValueError(CANARY), True), (Deposed(CANARY), False)])
async def test_one_that_fails_says_what_kind_of_error(
    collector: Collector, error: Exception, fails: bool
) -> None:
    def answer() -> None:
        raise error

    with pytest.raises(type(error)):
        await passed(collector, answer)
    span = collector.one("reconcile")
    assert span.failed is fails
    assert span.attributes["error.type"] == type(error).__name__
    assert not any(CANARY.encode() in body for body in collector.bodies)


async def test_only_a_share_is_traced(collector: Collector) -> None:
    await passed(collector, lambda: None, ratio=0.0)
    assert collector.spans == []


async def test_a_collector_that_is_away_fails_no_pass() -> None:
    spans = provider("http://127.0.0.1:9", 1.0, "operator-0", "0.1.0")
    assert await one_pass(lambda: None, spans).run("vision", "shelf-reader") is None
    await asyncio.to_thread(spans.shutdown)


async def test_lines_of_a_pass_name_its_trace(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.addFilter(logs.BoundFields())

    def answer() -> None:
        logging.getLogger("chiasm").warning("looking")

    await asyncio.create_task(passed(collector, answer))
    (record,) = [each for each in caplog.records if each.message == "looking"]
    assert record.__dict__["trace_id"] == collector.one("reconcile").trace_id


async def test_lines_of_a_pass_that_is_not_traced_name_no_trace_of_another(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    """Passes of a resource run in one task."""
    caplog.handler.addFilter(logs.BoundFields())

    async def passes() -> None:
        await passed(collector, lambda: None)
        await passed(collector, lambda: logging.getLogger("chiasm").warning("looking"), ratio=0.0)

    await asyncio.create_task(passes())
    (record,) = [each for each in caplog.records if each.message == "looking"]
    assert "trace_id" not in record.__dict__


@pytest.mark.parametrize(
    "endpoint", ["collector:4318", "http://user@there", "http://a?b", "http://a:99999"]
)
def test_what_is_no_endpoint_is_refused(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORKER", "SIDECAR", "SIDECAR_PEERS"):
        monkeypatch.setenv(f"CHIASM_OPERATOR_{name}_IMAGE", "i:1")
    monkeypatch.setenv("CHIASM_OPERATOR_TRACING_ENDPOINT", endpoint)
    with pytest.raises(SystemExit, match="CHIASM_OPERATOR_TRACING_ENDPOINT"):
        Settings.from_environment()
