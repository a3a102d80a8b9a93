"""A real Prometheus reads a real pod: both parts, and exemplars that name traces."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chiasm_cluster.build.prometheus import PROGRAM
from chiasm_contract.metric_specs import specs_of
from chiasm_dashboards.board import filled_in
from chiasm_dashboards.boards import BOARDS
from chiasm_sidecar.metrics import Metrics

from tests.sidecar.conftest import StartPod, data_url, png, question, until
from tests.sidecar.test_with_engine import free_ports

pytestmark = pytest.mark.prometheus

TRACE = "0af7651916cd43dd8448eb211c80319c"
OPENMETRICS = "# HELP w From the worker.\n# TYPE w counter\nw_total 3.0\n# EOF\n"
Start = Callable[..., Any]


@pytest.fixture
def start(programs: Path, watched: Any, tmp_path: Path) -> Iterator[Start]:
    """Starts a Prometheus that scrapes one address."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def begin(target: str) -> Any:
            made = watched.prometheus.Prometheus(
                programs / PROGRAM.name,
                tmp_path / "prometheus",
                free_ports()[0],
                [
                    {
                        "job_name": "chiasm",
                        "static_configs": [
                            {
                                "targets": [target],
                                "labels": {"namespace": "v", "resource": "r", "pod": "p"},
                            }
                        ],
                    }
                ],
            )
            return stack.enter_context(made.running())

        yield begin


async def scraped(prometheus: Any, expr: str) -> float:
    """The value of one series, once it is there."""
    found: list[float] = []

    async def there() -> bool:
        found[:] = [series.points[-1][1] for series in prometheus.query(expr)]
        return bool(found)

    await until(there)
    return found[0]


async def test_both_parts_and_their_exemplars_arrive(
    start_pod: StartPod, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Metrics.first_token

    def first_token(self: Metrics, modality: str, seconds: float, _: str | None) -> None:
        kept(self, modality, seconds, TRACE)  # as of a request whose trace is kept

    monkeypatch.setattr(Metrics, "first_token", first_token)
    pod = await start_pod()
    pod.worker.metrics_text = OPENMETRICS
    pod.worker.metrics_type = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert (await pod.chat(question(data_url(png()))))[0] == 200
    prometheus = start(pod.metrics_url.removeprefix("http://"))
    assert await scraped(prometheus, 'w_total{pod="p"}') == 3
    name = "chiasm_sidecar_first_token_seconds_count"
    assert await scraped(prometheus, f'{name}{{modality="image"}}') == 1
    assert await scraped(prometheus, "vllm:time_to_first_token_seconds_count") == 1
    assert prometheus.targets_down() == {}
    for metric in ("chiasm_sidecar_first_token_seconds", "vllm:time_to_first_token_seconds"):
        found = prometheus.get(
            "query_exemplars",
            query=f"{metric}_bucket",
            start=time.time() - 600,
            end=time.time() + 600,
        )
        exemplars = [each for series in found for each in series["exemplars"]]
        assert {each["labels"]["trace_id"] for each in exemplars} == {TRACE}


async def test_every_sidecar_metric_arrives_with_its_type(
    start_pod: StartPod, start: Start
) -> None:
    pod = await start_pod()
    prometheus = start(pod.metrics_url.removeprefix("http://"))
    await scraped(prometheus, "chiasm_sidecar_ready")
    known = prometheus.get("metadata")
    for spec in specs_of("sidecar"):
        if spec.name.startswith("chiasm_config_"):
            continue  # this pod has no sources
        entry = known.get(spec.name) or known.get(spec.name.removesuffix("_total"))
        assert entry, spec.name
        assert entry[0]["type"] == spec.kind, spec.name


async def test_prometheus_takes_every_query_of_every_panel(
    start_pod: StartPod, start: Start
) -> None:
    pod = await start_pod()
    prometheus = start(pod.metrics_url.removeprefix("http://"))
    values = dict.fromkeys(("namespace", "resource", "pod"), ".*") | {"__rate_interval": "1m"}
    for board in BOARDS:
        for panel in board.panels():
            for query in panel.queries:
                prometheus.query(filled_in(query.expr, values))  # raises when it is none
