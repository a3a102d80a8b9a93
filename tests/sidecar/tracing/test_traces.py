"""Traces of a whole sidecar before a scripted worker, as a real collector receives them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from chiasm_contract.config import TracingConfig
from chiasm_contract.errors import Unavailable
from chiasm_contract.messages import TokenEvent
from chiasm_contract.trace_context import parse
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.sidecar.conftest import ANSWER, Pod, StartPod, cut, data_url, png, question
from tests.sidecar.tracing.collector import Collector

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CANARY = "zanzibar"


async def traced(start_pod: StartPod, collector: Collector, ratio: float = 1.0) -> Pod:
    return await start_pod(tracing=TracingConfig(endpoint=collector.url, sample_ratio=ratio))


async def ask(pod: Pod, body: Any = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    where = f"{pod.url}/v1/chat/completions"
    body = question(data_url(png())) if body is None else body
    async with pod.http.post(where, json=body, headers=headers) as response:
        return response.status, dict(response.headers), await response.read()


async def test_the_tree_of_a_request(start_pod: StartPod, collector: Collector) -> None:
    pod = await traced(start_pod, collector)
    status, headers, _ = await ask(pod, **{"x-request-id": "mine"})
    assert status == 200
    await collector.named("chat demo", "prefill chunk")
    root = collector.one("chat demo")
    assert root.parent_id == ""
    assert (root.service, root.kind) == ("chiasm-sidecar", Span.SPAN_KIND_SERVER)
    assert [span.name for span in collector.children(root)] == [
        "admission", "body", "parse", "ask worker",
    ]  # fmt: skip
    asking = collector.one("ask worker")
    assert asking.kind == Span.SPAN_KIND_CLIENT
    (prefill,) = collector.children(asking)
    assert (prefill.name, prefill.service) == ("prefill", "chiasm-worker")
    assert prefill.attributes == {"chiasm.chunks": 1}
    assert [span.name for span in collector.children(prefill)] == ["prefill chunk"]
    assert {span.trace_id for span in collector.spans} == {root.trace_id}
    assert not any(span.failed for span in collector.spans)
    for span in (root, asking):
        assert all(span.start <= child.start for child in collector.children(span)
                   if child.service == "chiasm-sidecar")  # fmt: skip
    response = parse({"traceparent": headers["traceresponse"]})
    assert response is not None
    assert (response.trace_id, response.span_id) == (root.trace_id, root.span_id)
    (told,) = [header for header in pod.worker.traceparents if header]
    assert told == f"00-{root.trace_id}-{asking.span_id}-{told[-2:]}"


async def test_what_a_request_says_of_itself(start_pod: StartPod, collector: Collector) -> None:
    pod = await traced(start_pod, collector)
    data = png()
    body = question(data_url(data), temperature=0, max_tokens=9, seed=5)
    assert (await ask(pod, body, **{"x-request-id": "mine"}))[0] == 200
    await collector.named("chat demo")
    said = collector.one("chat demo").attributes
    answer_id = said.pop("gen_ai.response.id")
    assert answer_id.startswith("chatcmpl-")
    assert said.pop("gen_ai.response.time_to_first_chunk") > 0
    assert said == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "chiasm",
        "gen_ai.request.model": "demo",
        "gen_ai.request.stream": False,
        "gen_ai.request.choice.count": 1,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.temperature": 0.0,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.top_k": 0,
        "gen_ai.request.seed": 5,
        "gen_ai.request.presence_penalty": 0.0,
        "gen_ai.request.frequency_penalty": 0.0,
        "gen_ai.output.type": "text",
        "gen_ai.response.model": "demo",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "chiasm.media.modality": "image",
        "chiasm.media.image.items": 1,
        "chiasm.media.image.bytes": len(data),
        "chiasm.media.image.tokens": 16,
        "chiasm.request_id": "mine",
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
    }


async def test_a_callers_trace_is_joined(start_pod: StartPod, collector: Collector) -> None:
    pod = await traced(start_pod, collector, ratio=0.0)
    _, headers, _ = await ask(pod, traceparent=f"00-{TRACE}-{CALLER}-01", tracestate="a=b")
    await collector.named("chat demo")
    root = collector.one("chat demo")
    assert (root.trace_id, root.parent_id) == (TRACE, CALLER)
    assert headers["traceresponse"].startswith(f"00-{TRACE}-{root.span_id}-")


@pytest.mark.parametrize(
    ("ratio", "caller"), [(1.0, f"00-{TRACE}-{CALLER}-00"), (0.0, ""), (0.0, "00-rubbish-01")]
)
async def test_what_is_not_sampled_makes_no_span(
    start_pod: StartPod, collector: Collector, ratio: float, caller: str
) -> None:
    pod = await traced(start_pod, collector, ratio)
    headers = {"traceparent": caller} if caller else {}
    status, answered, _ = await ask(pod, **headers)
    assert status == 200
    assert "traceresponse" not in answered
    # One that is sampled comes through, and it alone.
    await ask(pod, traceparent=f"00-{'1' * 32}-{CALLER}-01")
    await collector.named("chat demo")
    assert {span.trace_id for span in collector.spans} == {"1" * 32}
    assert len(pod.worker.followed) == 1


async def test_a_malformed_header_begins_a_trace(start_pod: StartPod, collector: Collector) -> None:
    pod = await traced(start_pod, collector)
    await ask(pod, traceparent=f"00-{TRACE}-{'0' * 16}-01", tracestate="a=b")
    await collector.named("chat demo")
    root = collector.one("chat demo")
    assert root.parent_id == ""
    assert root.trace_id != TRACE


async def test_without_a_collector_nothing_is_made(start_pod: StartPod) -> None:
    pod = await start_pod()
    _, headers, _ = await ask(pod, traceparent=f"00-{TRACE}-{CALLER}-01")
    assert "traceresponse" not in headers
    # The worker learns the id for its log, and records nothing.
    assert pod.worker.traceparents[-1] == f"00-{TRACE}-{CALLER}-00"
    assert not pod.worker.followed


@pytest.mark.parametrize("stream", [False, True])
async def test_a_fault_is_in_the_status(
    start_pod: StartPod, collector: Collector, stream: bool
) -> None:
    pod = await traced(start_pod, collector)
    if stream:
        pod.worker.answer = (TokenEvent(text=CANARY, token_ids=(5,)), cut)
    else:
        pod.worker.refusal = Unavailable(CANARY)
    await ask(pod, question(stream=stream))
    await collector.named("chat demo", "ask worker")
    root, asking = collector.one("chat demo"), collector.one("ask worker")
    assert root.failed
    assert asking.failed
    assert root.attributes["error.type"] == "503"
    assert root.attributes["http.response.status_code"] == 503
    assert asking.attributes["error.type"] == ("WorkerGone" if stream else "Unavailable")


async def test_a_clients_fault_is_none_of_ours(start_pod: StartPod, collector: Collector) -> None:
    pod = await traced(start_pod, collector)
    status, headers, _ = await ask(pod, {"model": "demo"})
    assert status == 400
    assert "traceresponse" in headers
    await collector.named("chat demo")
    root = collector.one("chat demo")
    assert not root.failed
    assert root.attributes["http.response.status_code"] == 400


async def test_nothing_of_what_was_said_is_sent(start_pod: StartPod, collector: Collector) -> None:
    pod = await traced(start_pod, collector)
    pod.worker.answer = (TokenEvent(text=CANARY, token_ids=(5,)), *ANSWER)
    body = question(data_url(png()), stop=[CANARY], user=CANARY)
    body["messages"][0]["content"].append({"type": "text", "text": CANARY})
    headers = {"authorization": f"Bearer {CANARY}", "baggage": f"a={CANARY}"}
    assert (await ask(pod, body, **headers))[0] == 200
    await ask(pod, body | {"temperature": CANARY})
    await collector.until(lambda spans: [s.name for s in spans].count("chat demo") == 2)
    await collector.named("prefill chunk")
    assert not any(CANARY.encode() in sent for sent in collector.bodies)


async def test_a_collector_that_is_away_is_nobodys_problem(
    start_pod: StartPod, collector: Collector
) -> None:
    pod = await start_pod(tracing=TracingConfig(endpoint="http://127.0.0.1:9", sample_ratio=1.0))
    for _ in range(3):
        assert (await ask(pod))[0] == 200


async def test_what_becomes_of_spans_is_counted(start_pod: StartPod, collector: Collector) -> None:
    pod = await traced(start_pod, collector)
    await ask(pod)
    await collector.named("chat demo", "prefill chunk")
    name = 'chiasm_trace_spans_total{outcome="exported"}'
    assert await pod.metric(name) == len(collector.spans)
    collector.status = 400
    await ask(pod)
    failed = 'chiasm_trace_spans_total{outcome="failed"}'
    await collector.until(lambda _: len(collector.bodies) > 1)
    async with asyncio.timeout(20):
        while await pod.metric(failed) == 0:  # noqa: ASYNC110 - polled
            await asyncio.sleep(0.02)


async def test_a_request_is_found_by_its_trace(start_pod: StartPod, collector: Collector) -> None:
    pod = await traced(start_pod, collector)
    _, headers, _ = await ask(pod)
    response = parse({"traceparent": headers["traceresponse"]})
    assert response is not None
    where = f"{pod.metrics_url}/-/timeline"
    async with pod.http.get(where, params={"request": response.trace_id}) as answer:
        assert answer.status == 200
