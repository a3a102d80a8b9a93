"""Every metric named is exposed, every one exposed is named; one exposition for the pod."""

from __future__ import annotations

from pathlib import Path

from chiasm_contract.configuration import ConfigSource, Configuration
from chiasm_contract.metric_forms import OPENMETRICS
from chiasm_contract.metric_specs import METRIC_SPECS, markdown, specs_of
from chiasm_sidecar.configuration.meters import ConfigMeters
from chiasm_sidecar.exposition import WorkerPart
from chiasm_sidecar.metrics import Metrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.sidecar.conftest import StartPod, data_url, png, question


def exposed(text: str) -> dict[str, list[dict[str, str]]]:
    """Sample name -> the label sets it is exposed with."""
    names: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            names.setdefault(sample.name, []).append(sample.labels)
    return names


def test_exposed_is_what_is_named() -> None:
    metrics = Metrics("demo")
    source = ConfigSource(name="app", kind="mounted", path=Path("/nowhere"))
    meters = ConfigMeters(metrics, Configuration(environment="e", sources=(source,)), "r")
    meters.lease_left("app", lambda: 1.0)
    names = exposed(metrics.exposition()[0].decode())
    assert set(names) == {name for spec in specs_of("sidecar") for name in spec.sample_names}


async def test_labels_stay_within_their_sets(start_pod: StartPod) -> None:
    pod = await start_pod()
    await pod.chat(question(data_url(png())))
    await pod.chat(question(stream=1))
    await pod.chat(question() | {"model": "<script>"})
    async with pod.http.get(f"{pod.metrics_url}/metrics") as response:
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        names = exposed(await response.text())
    for spec in specs_of("sidecar"):
        for name in spec.sample_names:
            # Without a configuration there are no sources to count.
            of_sources = name.startswith("chiasm_config_") and next(iter(spec.labels)) != "outcome"
            for labels in [] if of_sources else names[name]:
                labels.pop("le", None)
                assert set(labels) == set(spec.labels)
                for label, value in labels.items():
                    assert value in (spec.labels[label] or ("demo",))


async def test_a_request_is_counted_everywhere(start_pod: StartPod) -> None:
    pod = await start_pod()
    data = png()
    assert (await pod.chat(question(data_url(data))))[0] == 200
    assert (await pod.chat(question("https://a/b")))[0] == 400
    model = 'model_name="demo"'
    expected = {
        'chiasm_sidecar_requests_total{code="200",modality="image"}': 1,
        'chiasm_sidecar_requests_total{code="400",modality="unknown"}': 1,
        "chiasm_sidecar_request_body_bytes_count": 2,
        'chiasm_sidecar_images_total{format="png"}': 1,
        "chiasm_sidecar_image_bytes_sum": len(data),
        "chiasm_sidecar_requests_in_progress": 0,
        f'vllm:request_success_total{{finished_reason="stop",{model}}}': 1,
        f"vllm:request_prompt_tokens_sum{{{model}}}": 20,
        f"vllm:request_generation_tokens_sum{{{model}}}": 2,
        f"vllm:time_to_first_token_seconds_count{{{model}}}": 1,
        f"vllm:e2e_request_latency_seconds_count{{{model}}}": 1,
        'chiasm_sidecar_first_token_seconds_count{modality="image"}': 1,
        'chiasm_sidecar_first_token_seconds_count{modality="text"}': 0,
    }
    assert {name: await pod.metric(name) for name in expected} == expected


async def test_the_workers_metrics_leave_with_ours(start_pod: StartPod) -> None:
    pod = await start_pod()
    assert await pod.metric("w_total") == 3
    await pod.worker.stop()
    assert await pod.metric("chiasm_sidecar_requests_in_progress") == 0


def test_no_family_appears_twice() -> None:
    metrics = Metrics("demo")
    worker = (
        "# HELP chiasm_sidecar_ready Stolen.\n# TYPE chiasm_sidecar_ready gauge\n"
        "chiasm_sidecar_ready 1.0\n"
        "# HELP w Worker's.\n# TYPE w gauge\nw 2.0"
    )
    text = metrics.exposition(WorkerPart(worker))[0].decode()
    assert text.count("# TYPE chiasm_sidecar_ready") == 1
    assert "Stolen" not in text
    assert text.endswith("w 2.0\n")


TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_exemplars_name_the_trace_of_a_slow_answer() -> None:
    metrics = Metrics("demo")
    metrics.first_token("image", 0.7, TRACE)
    metrics.first_token("text", 0.2, None)
    metrics.next_token("image", 0.01, TRACE)
    data, content_type = metrics.exposition(form=OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    samples = [sample for family in openmetrics(data.decode()) for sample in family.samples]
    named = {
        (sample.name, sample.exemplar.labels["trace_id"], sample.exemplar.value)
        for sample in samples
        if sample.exemplar
    }
    assert named == {
        ("vllm:time_to_first_token_seconds_bucket", TRACE, 0.7),
        ("chiasm_sidecar_first_token_seconds_bucket", TRACE, 0.7),
        ("vllm:inter_token_latency_seconds_bucket", TRACE, 0.01),
        ("chiasm_sidecar_inter_token_seconds_bucket", TRACE, 0.01),
    }
    assert TRACE not in metrics.exposition()[0].decode(), "the older form has no place for it"


def test_both_parts_make_one_openmetrics_exposition() -> None:
    metrics = Metrics("demo")
    worker = WorkerPart(
        "# HELP w From the worker.\n# TYPE w counter\nw_total 3.0\n# EOF\n", OPENMETRICS
    )
    text = metrics.exposition(worker, OPENMETRICS)[0].decode()
    assert text.count("# EOF") == 1
    families = {family.name: family for family in openmetrics(text)}
    assert families["w"].samples[0].value == 3
    counters = {spec.name for spec in specs_of("sidecar") if spec.kind == "counter"}
    assert {name.removesuffix("_total") for name in counters} - {
        name for name in families if families[name].type == "counter"
    } == set()


async def test_a_worker_that_speaks_only_plain_text_is_not_left_out(start_pod: StartPod) -> None:
    pod = await start_pod()
    async with pod.http.get(
        f"{pod.metrics_url}/metrics", headers={"accept": OPENMETRICS}
    ) as response:
        assert response.headers["content-type"].startswith("text/plain")
        assert exposed(await response.text())["w_total"] == [{}]
    await pod.worker.stop()
    async with pod.http.get(
        f"{pod.metrics_url}/metrics", headers={"accept": OPENMETRICS}
    ) as response:
        assert response.headers["content-type"].startswith("application/openmetrics-text")
        assert (await response.text()).endswith("# EOF\n")


def test_the_list_is_sound() -> None:
    names = [spec.name for spec in METRIC_SPECS]
    assert len(set(names)) == len(names)
    for spec in METRIC_SPECS:
        assert spec.name.startswith(("vllm:", "chiasm_"))
        assert (spec.kind == "counter") is spec.name.endswith("_total")
        assert (spec.kind == "histogram") is bool(spec.buckets)
        assert list(spec.buckets) == sorted(spec.buckets)
        assert spec.help.endswith(".")
        assert f"| {spec.name} |" in markdown()
