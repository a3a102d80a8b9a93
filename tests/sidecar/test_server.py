"""The process: its file, its ports, its signals."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from chiasm_contract.config import SidecarConfig
from chiasm_contract.tiers import BlockTiers
from chiasm_sidecar.drain import DRAIN_SIGNAL

from tests.sidecar.conftest import ScriptedWorker, forever, question, until

PROGRAM = "import sys, pathlib; from chiasm_sidecar.main import run; run(pathlib.Path(sys.argv[1]))"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


def own_ports(worker: ScriptedWorker, revision: str = "") -> SidecarConfig:
    """For a process: it listens on its own."""
    return SidecarConfig(
        model_id="demo",
        worker_socket=worker.socket_path,
        host="127.0.0.1",
        api_port=free_port(),
        metrics_port=free_port(),
        revision=revision,
    )


def command(config: SidecarConfig, folder: Path) -> list[str]:
    path = folder / "sidecar.json"
    path.write_text(config.model_dump_json())
    return [sys.executable, "-c", PROGRAM, str(path)]


@dataclass
class Running:
    process: asyncio.subprocess.Process
    url: str
    http: aiohttp.ClientSession

    async def ready(self) -> tuple[int, str]:
        async with self.http.get(f"{self.url}/ready") as answer:
            return answer.status, (await answer.json())["reason"]

    async def ended(self) -> tuple[int | None, str]:
        async with asyncio.timeout(30):
            _, errors = await self.process.communicate()
        return self.process.returncode, errors.decode()


@pytest.fixture
async def sidecar(worker: ScriptedWorker, tmp_path: Path) -> AsyncIterator[Running]:
    config = own_ports(worker)
    process = await asyncio.create_subprocess_exec(
        *command(config, tmp_path), stderr=subprocess.PIPE
    )
    async with aiohttp.ClientSession() as http:
        running = Running(process, f"http://127.0.0.1:{config.api_port}", http)
        try:
            async with asyncio.timeout(30):
                while True:
                    try:
                        if await running.ready() == (200, "Ready"):
                            break
                    except aiohttp.ClientError:
                        pass
                    await asyncio.sleep(0.02)
            yield running
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def ask(sidecar: Running) -> tuple[int, str | None]:
    """Status of one answer, and its header Connection."""
    async with sidecar.http.post(f"{sidecar.url}/v1/chat/completions", json=question()) as answer:
        await answer.read()
        return answer.status, answer.headers.get("connection")


async def test_a_pod_that_goes_sends_its_clients_elsewhere(
    sidecar: Running, worker: ScriptedWorker
) -> None:
    let_go = asyncio.Event()

    async def wait(_: object) -> None:
        await let_go.wait()

    end = worker.answer
    worker.answer = (wait, *end)
    assert sidecar.process.returncode is None
    early = asyncio.create_task(ask(sidecar))
    await until(worker.busy)
    sidecar.process.send_signal(DRAIN_SIGNAL)

    async def draining() -> bool:
        return await sidecar.ready() == (503, "Draining")

    await until(draining)
    worker.answer = end
    assert await ask(sidecar) == (200, "close"), "those who have not heard are answered"
    sidecar.process.send_signal(signal.SIGTERM)

    async def closed() -> bool:
        try:
            await sidecar.ready()
        except aiohttp.ClientError:
            return True
        return False

    await until(closed)
    let_go.set()
    assert await early == (200, "close"), "an answer that runs is finished"
    status, log = await sidecar.ended()
    assert status == 0
    assert '"message": "draining"' in log


async def test_term_alone_finishes_what_runs(sidecar: Running, worker: ScriptedWorker) -> None:
    let_go = asyncio.Event()

    async def wait(_: object) -> None:
        await let_go.wait()

    worker.answer = (wait, *worker.answer)
    early = asyncio.create_task(ask(sidecar))
    await until(worker.busy)
    sidecar.process.send_signal(signal.SIGTERM)

    async def closed() -> bool:
        try:
            await sidecar.ready()
        except aiohttp.ClientError:
            return True
        return False

    await until(closed)
    let_go.set()
    assert (await early)[0] == 200
    assert (await sidecar.ended())[0] == 0


async def test_second_interrupt_ends_what_runs(sidecar: Running, worker: ScriptedWorker) -> None:
    worker.answer = (forever,)
    request = asyncio.create_task(ask(sidecar))
    await until(worker.busy)
    sidecar.process.send_signal(signal.SIGINT)
    await asyncio.sleep(0.3)
    assert sidecar.process.returncode is None
    sidecar.process.send_signal(signal.SIGINT)
    status, _ = await sidecar.ended()
    assert status == 0
    await asyncio.gather(request, return_exceptions=True)


def test_taken_port_is_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = SidecarConfig(model_id="demo", host="127.0.0.1", api_port=port, metrics_port=0)
        ended = subprocess.run(
            command(config, tmp_path), check=False, capture_output=True, text=True
        )
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        f"chiasm sidecar: cannot listen on 127.0.0.1 port {port}: Address already in use"
    ]


@pytest.mark.parametrize("content", [None, "{}", '{"model_id": "demo", "surprise": 1}'])
def test_wrong_file_is_a_sentence(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "sidecar.json"
    if content is not None:
        path.write_text(content)
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], check=False, capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"chiasm sidecar: cannot use {path}: ")
    assert "Traceback" not in ended.stderr


def test_a_missing_folder_of_the_block_socket_is_a_sentence(tmp_path: Path) -> None:
    config = SidecarConfig(
        model_id="demo",
        worker_socket=tmp_path / "w.sock",
        tiers=BlockTiers(socket_path=tmp_path / "gone" / "kv.sock"),
    )
    ended = subprocess.run(command(config, tmp_path), check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        f"chiasm sidecar: there is no folder {tmp_path / 'gone'} for tiers.socket_path; make it, "
        "or name another."
    ]
