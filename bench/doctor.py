"""`chiasm doctor` on whole pods: does it find what is planted, and nothing where nothing is?

A pod is a worker and a sidecar as they are, on a real Unix socket, here in one process, with the
demo model and with a tiny random one. The doctor asks port 9100 as a person does. Healthy runs:
half of them on an idle pod, half while clients ask about old and new pictures, in batches and in
chunks. Planted, each in a pod of its own, once idle and once under that load:

    attention   single tokens forget the first block; attention is given a block too many
    pool        blocks, or pictures, outlive their requests
    drift       positions behind the prompt are shifted; the cache rounds K and V
    identity    the model's files are others than were loaded
    leases      a lease of the configuration has ended

`found` counts those whose findings are exactly of the planted check. A healthy run that could not
look at everything is no false alarm, and is counted in `not_everything_seen`.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import torch
from chiasm_cli.doctor import Patient, at, status
from chiasm_contract.checkup import CheckupReport
from chiasm_contract.config import EngineLimits, SidecarConfig, WorkerConfig
from chiasm_contract.configuration import ConfigReport, LeaseReport, SourceReport
from chiasm_sidecar.configuration.desk import Desk
from chiasm_sidecar.server import listen, running
from chiasm_worker.engine.engine import Engine
from chiasm_worker.main import loading, web_server
from chiasm_worker.models.tiny import TINY_MODELS, write_tiny_model
from chiasm_worker.serving import WorkerState
from pictures import noise
from reporting import publish

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from tests.worker.checkup.faults import BOTTLENECKS  # noqa: E402 - beside the tests that use it

DEMO_MODEL = ROOT / "demo" / "model"
NUM_CLIENTS = 8
# Small enough that clients' requests preempt each other.
LIMITS = EngineLimits(
    block_size=8, kv_cache_bytes=2**21, max_model_len=512, max_num_batched_tokens=96
)


@dataclass
class Pod:
    """A pod that serves."""

    url: str
    metrics_url: str
    engine: Engine
    folder: Path

    async def look(self) -> Patient:
        """What the doctor sees."""
        return await asyncio.to_thread(at, self.metrics_url)


@contextlib.asynccontextmanager
async def pod(model: Path) -> AsyncIterator[Pod]:
    """A worker and its sidecar, with a copy of a model."""
    with tempfile.TemporaryDirectory(prefix="chiasm-") as scratch:
        folder = Path(shutil.copytree(model, Path(scratch) / "model"))
        config = WorkerConfig(
            model_id="demo",
            model_path=folder,
            num_threads=1,
            engine=LIMITS,
            socket_path=Path(scratch) / "w.sock",
        )
        state = WorkerState(config)
        server = web_server(state)
        sidecar = SidecarConfig(model_id="demo", worker_socket=config.socket_path, host="127.0.0.1")
        api, metrics = listen("127.0.0.1", 0), listen("127.0.0.1", 0)
        url, metrics_url = (f"http://127.0.0.1:{sock.getsockname()[1]}" for sock in (api, metrics))
        async with loading(state):
            serving = asyncio.create_task(server.serve())
            try:
                async with running(sidecar, api, metrics) as begun:
                    while not begun.readiness.routable:  # noqa: ASYNC110 - it sets no event
                        await asyncio.sleep(0.05)
                    assert state.serving is not None
                    yield Pod(url, metrics_url, state.serving.service.engine, folder)
            finally:
                server.should_exit = True
                await serving


@contextlib.asynccontextmanager
async def load(pod: Pod, rng: random.Random) -> AsyncIterator[None]:
    """Clients that ask about pictures and text as long as the block runs."""
    files = [noise(rng, 56, 168) for _ in range(6)]
    done = asyncio.Event()

    async def keep_asking(session: aiohttp.ClientSession) -> None:
        while not done.is_set():
            shown = [
                rng.choice(files) if rng.random() < 0.5 else noise(rng, 56, 168)
                for _ in range(rng.choice((0, 1, 1, 2)))
            ]
            body = question(shown, "x" * rng.randrange(80), rng.randint(4, 40))
            async with session.post(f"{pod.url}/v1/chat/completions", json=body) as answer:
                await answer.read()

    async with aiohttp.ClientSession() as session:
        clients = [asyncio.create_task(keep_asking(session)) for _ in range(NUM_CLIENTS)]
        try:
            yield
        finally:
            done.set()
            await asyncio.gather(*clients, return_exceptions=True)


def question(shown: list[bytes], words: str, max_tokens: int) -> dict[str, Any]:
    """A chat request."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": f"What is it? {words}"}]
    for data in shown:
        address = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        parts.append({"type": "image_url", "image_url": {"url": address}})
    message = {"role": "user", "content": parts}
    return {"model": "demo", "messages": [message], "max_tokens": max_tokens, "temperature": 0}


def other_files(pod: Pod, _: pytest.MonkeyPatch) -> None:
    """The weights of the model's folder become others, as by a careless copy."""
    weights = pod.folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-4] ^= 1
    beside = weights.with_suffix(".new")
    beside.write_bytes(data)
    os.replace(beside, weights)


def ended_lease(_: Pod, patch: pytest.MonkeyPatch) -> None:
    """What the sidecar holds of its configuration: a lease that nobody renewed."""
    over = LeaseReport(
        began=time.time() - 3600, expires=time.time() - 60, ends=time.time() - 60,
        ttl_seconds=3540, renewable=True,
    )  # fmt: skip
    source = SourceReport(name="app", leased=True, lease=over, fault="permission denied")
    report = ConfigReport(environment="prod", sources=(source,))
    patch.setattr(Desk, "report", lambda _: report)


Plant = Callable[[Pod, pytest.MonkeyPatch], None]


def in_engine(plant: Callable[[Engine, pytest.MonkeyPatch], None]) -> Plant:
    """What breaks an engine, for a pod."""
    return lambda pod, patch: plant(pod.engine, patch)


FAULTS: dict[str, tuple[str, Plant]] = {
    **{name: (check, in_engine(plant)) for name, (check, plant) in BOTTLENECKS.items()},
    "changed files": ("identity", other_files),
    "a lease that ended": ("leases", ended_lease),
}


async def found(model: Path, name: str, rng: random.Random, *, loaded: bool) -> list[str]:
    """The checks of the findings once a fault is planted."""
    _, plant = FAULTS[name]
    async with contextlib.AsyncExitStack() as stack:
        patient = await stack.enter_async_context(pod(model))
        if loaded:
            await stack.enter_async_context(load(patient, rng))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        plant(patient, patch)
        seen = await patient.look()
        patch.undo()
    if not isinstance(seen.report, CheckupReport):
        return [f"not seen: {seen.report}"]
    return [finding.check for finding in seen.report.findings]


async def healthy(model: Path, runs: int, rng: random.Random, *, loaded: bool) -> dict[str, Any]:
    """Looks at one pod, again and again."""
    alarms, partly, seconds = [], 0, []
    async with contextlib.AsyncExitStack() as stack:
        patient = await stack.enter_async_context(pod(model))
        if loaded:
            await stack.enter_async_context(load(patient, rng))
        for _ in range(runs):
            seen = await patient.look()
            assert isinstance(seen.report, CheckupReport), seen.report
            alarms += [f"{f.check}: {f.what}" for f in seen.report.findings]
            partly += bool(status([seen]) == 2)
            seconds.append(seen.report.seconds)
        engine = patient.engine
        served = {
            "generated_tokens": engine.totals.generation_tokens,
            "encoded_pictures": engine.runner.encoding.num_items,
            "preemptions": engine.scheduler.counters.num_preemptions,
        }
    slowest = round(max(seconds, default=0.0), 2)
    return {"runs": runs, "alarms": alarms, "partly": partly, "seconds": slowest, **served}


async def measure(runs: int, rng: random.Random) -> dict[str, Any]:
    """All healthy runs, then all faults."""
    with tempfile.TemporaryDirectory() as scratch:
        models = {
            "demo": DEMO_MODEL,
            "tiny": write_tiny_model(TINY_MODELS[0], Path(scratch) / "tiny"),
        }
        sound: dict[str, Any] = {}
        for number, (name, loaded) in enumerate(
            (name, loaded) for name in models for loaded in (False, True)
        ):
            share = runs // 4 + (number < runs % 4)
            key = f"{name}, {'under load' if loaded else 'idle'}"
            sound[key] = await healthy(models[name], share, rng, loaded=loaded)
            print(key, sound[key], flush=True)
        planted: dict[str, Any] = {}
        for name, (check, _) in FAULTS.items():
            for loaded in (False, True):
                seen = await found(models["demo"], name, rng, loaded=loaded)
                key = f"{name}, {'under load' if loaded else 'idle'}"
                planted[key] = {"planted": check, "found": seen}
                print(key, planted[key], flush=True)
    return {
        "planted": len(planted),
        "found": sum(each["found"] == [each["planted"]] for each in planted.values()),
        "healthy_runs": sum(each["runs"] for each in sound.values()),
        "false_alarms": sum(len(each["alarms"]) for each in sound.values()),
        "not_everything_seen": sum(each["partly"] for each in sound.values()),
        "longest_look_seconds": round(max(each["seconds"] for each in sound.values()), 2),
        "by_fault": planted,
        "by_pod": sound,
    }


def main() -> None:
    """Measure, publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="healthy runs")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    publish("doctor", asyncio.run(measure(args.runs, random.Random(args.seed))))


if __name__ == "__main__":
    main()
