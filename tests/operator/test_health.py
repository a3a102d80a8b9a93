"""What the kubelet is told: by a process that starts, waits for its webhook's keys, or stalls."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from chiasm_operator.admission.server import WebhookServer
from chiasm_operator.admission.webhook import Webhook
from chiasm_operator.cluster import RESOURCE
from chiasm_operator.health import LIVE, METRICS, READY, Health, Report
from chiasm_operator.leadership.fence import Fence
from chiasm_operator.leadership.keeper import LeaseKeeper
from chiasm_operator.port import Port
from chiasm_operator.runtime import Runtime
from chiasm_operator.supervisor import Supervisor, Tempo

from tests.operator.admission.test_server import Objects
from tests.operator.test_runtime import Passes, SlowCluster, Store, until

WELL = Report("leading", 3)


async def ask(port: Port, path: str) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"http://127.0.0.1:{port.number}{path}") as response,
    ):
        text = await response.text()
        return response.status, json.loads(text) if response.status != 404 else text


@pytest.mark.parametrize(
    ("report", "live", "ready"),
    [
        (WELL, 200, 200),
        (Report("leading", 3, awaited="The webhook."), 200, 503),
        (Report("leading", 3, stalled="A pass."), 503, 503),
        (Report("leading", 3, stalled="A pass.", awaited="The webhook."), 503, 503),
    ],
)
async def test_who_waits_is_alive_and_who_stalls_is_not(
    report: Report, live: int, ready: int
) -> None:
    health = Health("127.0.0.1", 0, lambda: report, lambda accept: (b"", "text/plain"))
    await health.port.open()
    for path, status in ((LIVE, live), (READY, ready)):
        told = await ask(health.port, path)
        message = report.stalled or report.awaited
        said = {"leader": "leading", "resources": 3} if status == 200 else {"message": message}
        assert told == (status, said)
    assert (await ask(health.port, "/"))[0] == 404
    await health.port.close()


@dataclass
class SlowObjects(Objects):
    """An API server that shows the webhook's Secret when it is let."""

    shown: asyncio.Event = field(default_factory=asyncio.Event)

    async def read_secret(self) -> dict[str, Any]:
        await self.shown.wait()
        return await super().read_secret()


@dataclass
class Process:
    runtime: Runtime
    cluster: SlowCluster
    objects: SlowObjects
    server: WebhookServer
    passes: Passes


@pytest.fixture
async def process() -> AsyncIterator[Process]:
    fence = Fence(time.monotonic)
    passes = Passes(SlowCluster(fence))
    supervisor = Supervisor(
        passes,  # type: ignore[arg-type]
        Tempo(resync_seconds=3600, unsettled_seconds=0.01, stall_seconds=60),
        (),
        time.monotonic,
    )
    clocks = (time.monotonic, lambda: "2026-01-01T00:00:00Z")
    keeper = LeaseKeeper(Store(), fence, "pod-1", 1, clocks)
    objects, server = SlowObjects(), WebhookServer("127.0.0.1", 0)
    webhook = Webhook(objects, server, lambda: datetime.now(UTC))  # type: ignore[arg-type]

    async def closed() -> None: ...

    made = Runtime(supervisor, keeper, webhook, closed, ("127.0.0.1", 0))
    yield Process(made, passes.cluster, objects, server, passes)
    passes.hold.set()
    await made.stop()
    assert made.health.port.number is None


async def test_ready_once_the_webhook_listens(process: Process) -> None:
    """The API server found no endpoints, or one that did not listen (kserve #3102)."""
    await process.runtime.start()
    port = process.runtime.health.port
    status, told = await ask(port, READY)
    assert (status, process.server.port) == (503, None)
    assert "webhook does not listen yet" in told["message"]
    assert (await ask(port, LIVE))[0] == 200, "it is no reason to start it anew"
    process.objects.shown.set()
    await until(lambda: process.server.port is not None)
    assert (await ask(port, READY))[0] == 200


async def test_one_that_starts_says_so(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = asyncio.Event()

    async def long(*_: Any) -> None:
        await looked.wait()

    monkeypatch.setattr(process.runtime.supervisor, "check", long)
    starting = asyncio.create_task(process.runtime.start())
    port = process.runtime.health.port
    await until(lambda: port.number is not None)
    for path in (LIVE, READY):
        assert await ask(port, path) == (503, {"message": "The operator has not started yet."})
    looked.set()
    await starting
    assert (await ask(port, LIVE))[0] == 200


async def scrape(port: Port, accept: str = "") -> tuple[str, dict[str, float]]:
    url = f"http://127.0.0.1:{port.number}{METRICS}"
    async with aiohttp.ClientSession() as http, http.get(url, headers={"accept": accept}) as answer:
        lines = (await answer.text()).splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    kind = answer.headers["content-type"].partition(";")[0]
    return kind, {name: float(value) for name, value in pairs}


async def test_the_leader_tells_of_its_passes_and_resources(process: Process) -> None:
    runtime, cluster = process.runtime, process.cluster
    manifest = {
        "metadata": {"namespace": "n", "name": "a", "resourceVersion": "1"},
        "spec": {"replicas": 3},
    }
    cluster.index.put(RESOURCE.kind, manifest)
    cluster.may_list.set()
    port = runtime.health.port
    await port.open()
    _, told = await scrape(port)
    assert (told["chiasm_operator_leader"], told["chiasm_operator_resources"]) == (0, 0)
    assert told["chiasm_operator_sweep_age_seconds"] == 0
    assert not [name for name in told if name.startswith("chiasm_operator_resource_")]
    await port.close()

    await runtime.start()
    process.passes.hold.set()
    await until(lambda: runtime.supervisor.counts.outcomes["settled"] == 1)
    kind, told = await scrape(port, "application/openmetrics-text; version=1.0.0")
    assert kind == "application/openmetrics-text"
    assert (told["chiasm_operator_leader"], told["chiasm_operator_resources"]) == (1, 1)
    assert told['chiasm_operator_passes_total{outcome="settled"}'] == 1
    assert told["chiasm_operator_pass_seconds_count"] == 1
    whose = 'resource="a",resource_namespace="n"'
    assert told[f'chiasm_operator_resource_replicas{{{whose},state="desired"}}'] == 3

    cluster.index.drop(RESOURCE.kind, manifest)
    _, told = await scrape(port)
    assert not [name for name in told if name.startswith("chiasm_operator_resource_")]


async def test_what_a_watch_tells_ends_deafness(process: Process) -> None:
    runtime = process.runtime
    seconds = iter([100.0, 700.0, 700.0, 703.0])
    supervisor = Supervisor(
        process.passes,  # type: ignore[arg-type]
        Tempo(resync_seconds=3600, unsettled_seconds=0.01, stall_seconds=60),
        (),
        lambda: next(seconds),
    )
    runtime.supervisor = supervisor
    assert supervisor.event_age_seconds == 600
    gone = {"metadata": {"namespace": "n", "name": "b", "resourceVersion": "1"}}
    runtime.told(RESOURCE, "DELETED", gone)  # no news of anything that is known
    assert supervisor.event_age_seconds == 3
