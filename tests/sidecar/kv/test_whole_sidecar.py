"""The block service as a part of a sidecar: whom it serves follows readiness."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract.block_guard import USE
from chiasm_contract.errors import Unavailable

from tests.sidecar.conftest import Pod, ScriptedWorker, StartPod, identity, until
from tests.sidecar.kv.conftest import TestWorker, hello, key, record


def tiers(tmp_path: Path) -> dict[str, Any]:
    paths = {"socket_path": tmp_path / "kv.sock", "staging_path": tmp_path / "kv.staging"}
    return {**paths, "staging_bytes": 2**20, "host_bytes": 2**20}


async def connect(tmp_path: Path) -> TestWorker:
    return TestWorker(*await asyncio.open_unix_connection(tmp_path / "kv.sock"))


async def test_a_ready_pod_serves_its_worker(start_pod: StartPod, tmp_path: Path) -> None:
    pod: Pod = await start_pod(tiers=tiers(tmp_path))
    worker = await connect(tmp_path)
    assert await worker.greet(hello()) == ""
    await worker.store(record(0))
    assert [each.verdict for each in await worker.chain(key(0))] == [USE]
    labels = 'op="update_kv",outcome="use",tier="worker"'
    assert await pod.metric(f"chiasm_kv_version_check_total{{{labels}}}") == 1
    await worker.close()


async def test_a_pod_without_a_tier_that_it_should_have_serves_and_says_so(
    start_pod: StartPod, worker: ScriptedWorker, tmp_path: Path
) -> None:
    peers = {"hosts": ["127.0.0.1"], "secret_path": tmp_path / "not-there"}
    pod = await start_pod(tiers={**tiers(tmp_path), "peers": peers})

    async def state() -> dict[str, Any]:
        async with pod.http.get(f"{pod.metrics_url}/state") as answer:
            found: dict[str, Any] = await answer.json()
            return found

    async def told() -> bool:
        return bool((await state())["tier_faults"])

    await until(told)
    assert (await state())["ready"]
    assert (await state())["tier_faults"] == ["peers: secret_path cannot be read, errno 2"]
    worker.unhealthy = Unavailable("It is busy.")
    pod.sidecar.readiness.doubt()
    await pod.until("WorkerUnavailable")
    assert (await state())["tier_faults"], "it stays true whatever becomes of the worker"


async def test_a_pod_that_is_not_ready_serves_nobody(start_pod: StartPod, tmp_path: Path) -> None:
    expected = {"compute.compute_dtype": "bfloat16"}
    await start_pod(wait_for="IdentityMismatch", expected_identity=expected, tiers=tiers(tmp_path))
    worker = await connect(tmp_path)
    assert "not admitted yet" in await worker.greet(hello())
    await worker.close()


async def test_a_restarted_worker_is_served_once_it_is_admitted(
    start_pod: StartPod, worker: ScriptedWorker, tmp_path: Path
) -> None:
    pod = await start_pod(tiers=tiers(tmp_path))
    first = await connect(tmp_path)
    assert await first.greet(hello()) == ""
    await first.store(record(0))
    await first.close()
    worker.identity = identity("two")
    early = await connect(tmp_path)
    assert "expected 'one'" in await early.greet(hello(identity("two")))
    await early.close()
    pod.sidecar.readiness.doubt()
    async with asyncio.timeout(20):
        while True:
            second = await connect(tmp_path)
            if not await second.greet(hello(identity("two"))):
                break
            await second.close()
    assert [each.verdict for each in await second.chain(key(0))] == [USE], "still warm"
    await second.close()


@pytest.mark.parametrize("settings", [{}, {"tiers": None}])
async def test_without_tiers_there_is_no_socket(
    start_pod: StartPod, tmp_path: Path, settings: dict[str, Any]
) -> None:
    await start_pod(**settings)
    assert [name for name in os.listdir(tmp_path) if name.startswith("kv")] == []
