"""One trace through both processes of a pod and its tiers, with the demo's model."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from chiasm_contract.config import EngineLimits, SidecarConfig, TracingConfig, WorkerConfig
from chiasm_contract.tiers import BlockService, BlockTiers
from chiasm_contract.timeline import PodRecording

from tests.sidecar.conftest import data_url, png, question
from tests.sidecar.test_with_engine import DEMO_MODEL, free_ports
from tests.sidecar.tracing.collector import Collector

CANARY = "zanzibar"
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = {"traceparent": f"00-{TRACE}-{CALLER}-01", "x-request-id": "mine"}


class Pod:
    """Both processes, their log, and a client."""

    def __init__(self, folder: Path, collector: Collector) -> None:
        self.folder = folder
        api, metrics = free_ports()
        self.url, self.metrics_url = (f"http://127.0.0.1:{port}" for port in (api, metrics))
        kv = folder / "kv.sock"
        worker = WorkerConfig(
            model_id="demo",
            model_path=DEMO_MODEL,
            num_threads=1,
            engine=EngineLimits(kv_cache_bytes=2**25),
            socket_path=folder / "worker.sock",
            block_service=BlockService(socket_path=kv),
        )
        sidecar = SidecarConfig(
            model_id="demo",
            worker_socket=worker.socket_path,
            host="127.0.0.1",
            api_port=api,
            metrics_port=metrics,
            access_log=True,
            tiers=BlockTiers(
                socket_path=kv,
                staging_path=folder / "kv.staging",
                staging_bytes=2**24,
                host_bytes=2**24,
            ),
            tracing=TracingConfig(endpoint=collector.url, sample_ratio=0.0),
        )
        self.processes = []
        for name, config in (("worker", worker), ("sidecar", sidecar)):
            path = folder / f"{name}.json"
            path.write_text(config.model_dump_json())
            with (folder / f"{name}.log").open("wb") as log:
                command = [sys.executable, "-m", "chiasm_cli", name, "run", "--config", str(path)]
                self.processes.append(subprocess.Popen(command, stderr=log))

    def lines(self, name: str) -> list[dict[str, object]]:
        text = (self.folder / f"{name}.log").read_text()
        return [json.loads(line) for line in text.splitlines()]

    async def until_connected(self, http: aiohttp.ClientSession) -> None:
        async with asyncio.timeout(120):
            while True:
                try:
                    async with http.get(f"{self.metrics_url}/metrics") as answer:
                        if 'chiasm_worker_tier_connected{model_name="demo"} 1' in (
                            await answer.text()
                        ):
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.1)


@pytest.fixture
async def pod(tmp_path: Path, collector: Collector) -> AsyncIterator[Pod]:
    running = Pod(tmp_path, collector)
    try:
        yield running
    finally:
        for process in running.processes:
            process.kill()
            process.wait()


async def test_a_request_through_everything(pod: Pod, collector: Collector) -> None:
    body = question(data_url(png(168, 168)), max_tokens=6, temperature=0)
    body["messages"][0]["content"].append({"type": "text", "text": CANARY})
    where = f"{pod.url}/v1/chat/completions"
    async with aiohttp.ClientSession() as http:
        await pod.until_connected(http)
        async with http.post(where, json=body, headers=SAMPLED) as response:
            assert response.status == 200, await response.text()
            traceresponse, answer = response.headers["traceresponse"], await response.json()
        await collector.named("chat demo", "tier host", "prefill chunk")
        async with http.get(f"{pod.metrics_url}/-/timeline", params={"request": TRACE}) as response:
            text = await response.text()
    root = collector.one("chat demo")
    assert root.parent_id == CALLER
    assert traceresponse.startswith(f"00-{TRACE}-{root.span_id}-")
    assert {span.trace_id for span in collector.spans} == {TRACE}
    known = {span.span_id for span in collector.spans}
    assert all(span.parent_id in known for span in collector.spans if span is not root)
    asking = collector.children(collector.one("ask worker"))
    names = {span.name for span in asking}
    assert {"receive", "hash", "decode", "process", "prompt", "queue", "encode", "prefill"} <= names
    assert {"fetch", "tier host"} <= names
    tokens = next(span for span in asking if "chiasm.longest_gap_seconds" in span.attributes)
    assert tokens.attributes["chiasm.tokens"] == answer["usage"]["completion_tokens"]
    for span in asking:
        assert root.start <= span.start <= span.end <= root.end, span.name
    recording = PodRecording.model_validate_json(text)
    assert recording.worker is not None
    assert recording.worker.is_whole
    assert recording.sidecar.is_whole
    assert CANARY not in text
    assert not any(CANARY.encode() in sent for sent in collector.bodies)
    _check_logs(pod, answer["id"])


def _check_logs(pod: Pod, answer_id: str) -> None:
    """Every line is JSON; that of the request has all its names; nobody's words are in any."""
    (access,) = [line for line in pod.lines("sidecar") if line["message"] == "chat"]
    assert access["answer_id"] == answer_id
    assert access["request_id"] == "mine"
    assert access["trace_id"] == TRACE
    assert pod.lines("worker")
    for name in ("sidecar", "worker"):
        assert CANARY not in (pod.folder / f"{name}.log").read_text()
