"""The canary's sidecar is a process that is killed: before it answers, and in the middle."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from chiasm_contract.traffic import WHOLE, Version

from tests.sidecar.conftest import ScriptedWorker, forever, identity, question, until
from tests.sidecar.test_server import command, own_ports
from tests.sidecar.traffic.conftest import SAYS_CANARY, WEIGHTS, Fleet
from tests.sidecar.traffic.plans import CANARY, STABLE
from tests.sidecar.traffic.test_two_revisions import say


@dataclass
class CanaryProcess:
    worker: ScriptedWorker
    process: asyncio.subprocess.Process
    version: Version

    async def kill(self) -> None:
        self.process.kill()
        await self.process.communicate()


@pytest.fixture
async def canary(tmp_path: Path) -> AsyncIterator[CanaryProcess]:
    worker = ScriptedWorker(
        tmp_path / "killed.sock",
        identity("killed", **{"compute.weights.language": WEIGHTS[CANARY]}),
        answer=SAYS_CANARY,
    )
    await worker.start()
    config = own_ports(worker, CANARY)
    process = await asyncio.create_subprocess_exec(
        *command(config, tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        async with aiohttp.ClientSession() as http:

            async def ready() -> bool:
                try:
                    async with http.get(f"http://127.0.0.1:{config.api_port}/ready") as answer:
                        return answer.status == 200
                except aiohttp.ClientError:
                    return False

            await until(ready)
        yield CanaryProcess(
            worker, process, Version(revision=CANARY, address=f"127.0.0.1:{config.api_port}")
        )
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
        await worker.stop()


@pytest.mark.parametrize("stream", [False, True])
async def test_killed_before_its_first_word(
    fleet: Fleet, canary: CanaryProcess, stream: bool
) -> None:
    await fleet.follow(share=WHOLE, canary=canary.version)
    pod = fleet.stable[0]
    assert (await say(pod))[0] == CANARY, "the connection is in the pool now"
    canary.worker.answer = (forever,)
    asking = [asyncio.create_task(say(pod, question(stream=stream))) for _ in range(3)]

    async def all_there() -> bool:
        return canary.worker.num_open == 3

    await until(all_there)
    await canary.kill()
    assert {revision for revision, _ in await asyncio.gather(*asking)} == {STABLE}
    assert (await say(pod, question(stream=stream)))[0] == STABLE, "nobody listens there"
    counts = await fleet.counts(CANARY)
    assert (counts.requests, counts.errors, counts.rerouted, counts.answers) == (5, 4, 4, 1)


async def test_killed_in_the_middle_of_a_stream(fleet: Fleet, canary: CanaryProcess) -> None:
    canary.worker.answer = (SAYS_CANARY[0], forever)
    await fleet.follow(share=WHOLE, canary=canary.version)
    pod = fleet.stable[0]
    address = f"{pod.url}/v1/chat/completions"
    async with pod.http.post(address, json=question(stream=True)) as response:
        data = await response.content.readuntil(b"blue")
        await canary.kill()
        data += await response.content.read()
    *_, last = [event for event in data.decode().split("\n\n") if event]
    fault = json.loads(last.removeprefix("data: "))["error"]
    assert "ended before the answer did; ask again" in fault["message"]
    counts = await fleet.counts(CANARY)
    assert (counts.requests, counts.errors, counts.rerouted) == (1, 1, 0)
