"""The way from a slow reading to its trace: what the exposition names is what the answer said."""

from __future__ import annotations

from chiasm_contract.config import TracingConfig
from chiasm_contract.metric_forms import OPENMETRICS
from chiasm_contract.trace_context import parse
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.sidecar.conftest import Pod, StartPod, data_url, png, question
from tests.sidecar.tracing.collector import Collector

LATENCIES = {
    "vllm:time_to_first_token_seconds",
    "vllm:e2e_request_latency_seconds",
    "chiasm_sidecar_first_token_seconds",
}


async def asked(pod: Pod) -> str:
    """The trace id that the answer's header names; empty without one."""
    pod.worker.metrics_text, pod.worker.metrics_type = "# EOF\n", OPENMETRICS
    where = f"{pod.url}/v1/chat/completions"
    async with pod.http.post(where, json=question(data_url(png()))) as response:
        assert response.status == 200
        context = parse({"traceparent": response.headers.get("traceresponse", "")})
    return "" if context is None else context.trace_id


async def exemplars(pod: Pod) -> set[tuple[str, str]]:
    """(family, trace id) of all that the pod exposes."""
    accept = {"accept": OPENMETRICS}
    async with pod.http.get(f"{pod.metrics_url}/metrics", headers=accept) as response:
        assert response.headers["content-type"] == OPENMETRICS
        text = await response.text()
    return {
        (family.name, sample.exemplar.labels["trace_id"])
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.exemplar
    }


async def test_an_exemplar_names_the_trace_of_the_answer(
    start_pod: StartPod, collector: Collector
) -> None:
    pod = await start_pod(tracing=TracingConfig(endpoint=collector.url, sample_ratio=1.0))
    trace_id = await asked(pod)
    assert {(name, trace_id) for name in LATENCIES} <= await exemplars(pod)
    await collector.named("chat demo")
    assert {span.trace_id for span in collector.spans} == {trace_id}


async def test_a_trace_that_nobody_keeps_is_named_nowhere(
    start_pod: StartPod, collector: Collector
) -> None:
    pod = await start_pod(tracing=TracingConfig(endpoint=collector.url, sample_ratio=0.0))
    assert await asked(pod) == ""
    assert await exemplars(pod) == set()
