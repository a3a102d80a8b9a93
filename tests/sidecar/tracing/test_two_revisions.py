"""A request that another revision answers is one trace over both sidecars."""

from __future__ import annotations

from typing import Any

import pytest
from chiasm_contract.config import TracingConfig

from tests.sidecar.conftest import Pod, forever, question
from tests.sidecar.tracing.collector import Collector
from tests.sidecar.traffic.conftest import Fleet, StartFleet, start_fleet
from tests.sidecar.traffic.plans import CANARY, STABLE

__all__ = ["start_fleet"]

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
async def fleet(start_fleet: StartFleet, collector: Collector) -> Fleet:
    tracing = TracingConfig(endpoint=collector.url, sample_ratio=1.0)
    return await start_fleet(tracing=tracing)


async def ask(pod: Pod, **headers: str) -> dict[str, Any]:
    where = f"{pod.url}/v1/chat/completions"
    async with pod.http.post(where, json=question(), headers=headers) as response:
        assert response.status == 200
        return {**response.headers, "body": await response.json()}


async def test_one_trace_over_both(fleet: Fleet, collector: Collector) -> None:
    await fleet.follow(share=10_000)
    headers = await ask(fleet.stable[0], traceparent=f"00-{TRACE}-{CALLER}-01")
    spans = await collector.until(
        lambda spans: (
            [s.name for s in spans].count("chat demo") == 2 and "prefill" in {s.name for s in spans}
        )
    )
    first, second = sorted(
        (s for s in spans if s.name == "chat demo"), key=lambda s: s.parent_id != CALLER
    )
    asking = collector.one(f"ask {CANARY}")
    assert first.parent_id == CALLER
    assert asking.parent_id == first.span_id
    assert second.parent_id == asking.span_id
    assert {span.trace_id for span in spans} == {TRACE}
    assert first.resource["chiasm.revision"] == STABLE
    assert second.resource["chiasm.revision"] == CANARY
    for span in (first, second):
        assert span.attributes["chiasm.revision"] == CANARY
        assert span.attributes["chiasm.track"] == "canary"
    assert headers["traceresponse"].startswith(f"00-{TRACE}-{first.span_id}-")
    assert collector.children(collector.one("ask worker"))[0].name == "prefill"


async def test_who_did_not_answer_is_seen_too(fleet: Fleet, collector: Collector) -> None:
    await fleet.follow(share=10_000)
    fleet.canary[0].worker.answer = (forever,)
    await fleet.canary[0].sidecar.readiness.check()
    await fleet.canary[0].worker.stop()
    await ask(fleet.stable[0])
    spans = await collector.named(f"ask {CANARY}", "ask worker")
    (failed,) = [span for span in spans if span.name == f"ask {CANARY}"]
    assert failed.failed
    first = next(span for span in spans if span.span_id == failed.parent_id)
    assert first.attributes["chiasm.revision"] == STABLE
    assert not first.failed
