"""What traces cost: tokens per second with them off and on, in interleaved rounds of one run.

One worker with the demo model, and two sidecars before it: one without a collector, one that traces
every request and sends its spans to a collector that runs beside them. Each round asks the same
streams of both, one after the other, and who is first changes with every round, so that what else
the machine does meets both alike. `ratio` is the median over the rounds of on / off; its spread
stands beside it, and so does the sidecars' own processor time for a request.

The timeline is always on, in both: `timeline_us_a_step` is what noting a step of 16 requests takes.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import io
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from chiasm_contract.config import SidecarConfig, TracingConfig, WorkerConfig
from chiasm_contract.timeline import Row, Step
from chiasm_worker.timeline.ring import Timeline
from PIL import Image
from reporting import publish

ROOT = Path(__file__).resolve().parent.parent
DEMO_MODEL = ROOT / "demo" / "model"
STREAMS, TOKENS, WAVES = 4, 48, 5
NUM_STEPS = 20_000


@dataclass(frozen=True)
class Front:
    """One sidecar."""

    url: str
    metrics_url: str
    pid: int

    def cpu_ms(self) -> float:
        ran = Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]
        return int(ran) / 1e6


def picture(seed: int) -> str:
    image = Image.new("RGB", (200, 200), (seed % 256, seed // 256 % 256, 99))
    data = io.BytesIO()
    image.save(data, "PNG")
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()


def question(seed: int) -> dict[str, Any]:
    parts = [
        {"type": "image_url", "image_url": {"url": picture(seed)}},
        {"type": "text", "text": "How many circles are there?"},
    ]
    return {
        "model": "demo", "messages": [{"role": "user", "content": parts}], "stream": True,
        "temperature": 0, "max_tokens": TOKENS, "ignore_eos": True,
    }  # fmt: skip


async def stream(http: aiohttp.ClientSession, front: Front, seed: int) -> int:
    """Ask once; the pieces of text that came."""
    pieces = 0
    where = f"{front.url}/v1/chat/completions"
    async with http.post(where, json=question(seed)) as response:
        if response.status != 200:
            raise SystemExit(f"tracing_overhead: {await response.text()}")
        async for line in response.content:
            pieces += b'"content"' in line
    return pieces


async def tokens_a_second(http: aiohttp.ClientSession, front: Front, seed: int) -> float:
    """Of a few requests at once, one wave after the other: a single one is over too soon."""
    started = time.perf_counter()
    for wave in range(WAVES):
        first = seed + STREAMS * wave
        await asyncio.gather(*(stream(http, front, first + number) for number in range(STREAMS)))
    return WAVES * STREAMS * TOKENS / (time.perf_counter() - started)


@contextlib.contextmanager
def process(folder: Path, name: str, part: str, config: Any) -> Iterator[subprocess.Popen[bytes]]:
    path = folder / f"{name}.json"
    path.write_text(config.model_dump_json())
    command = [sys.executable, "-m", "chiasm_cli", part, "run", "--config", str(path)]
    with (folder / f"{name}.log").open("wb") as log:
        running = subprocess.Popen(command, stderr=log)
    try:
        yield running
    finally:
        running.terminate()
        running.wait(30)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def front(folder: Path, name: str, endpoint: str) -> Iterator[Front]:
    api, metrics = free_port(), free_port()
    tracing = TracingConfig(endpoint=endpoint, sample_ratio=1.0) if endpoint else None
    config = SidecarConfig(
        model_id="demo",
        worker_socket=folder / "worker.sock",
        host="127.0.0.1",
        api_port=api,
        metrics_port=metrics,
        tracing=tracing,
    )
    with process(folder, name, "sidecar", config) as running:
        yield Front(f"http://127.0.0.1:{api}", f"http://127.0.0.1:{metrics}", running.pid)


@contextlib.contextmanager
def collector() -> Iterator[str]:
    """In a process of its own, as it would be."""
    port = free_port()
    running = subprocess.Popen([sys.executable, __file__, "--collector", str(port)])
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(30)


def collect(port: int) -> None:
    async def receive(request: web.Request) -> web.Response:
        await request.read()
        return web.Response()

    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/traces", receive)
    web.run_app(app, host="127.0.0.1", port=port, print=None)


async def ready(http: aiohttp.ClientSession, front: Front) -> None:
    async with asyncio.timeout(180):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get(f"{front.url}/ready") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.1)


async def spans(http: aiohttp.ClientSession, front: Front) -> dict[str, int]:
    async with http.get(f"{front.metrics_url}/metrics") as answer:
        text = await answer.text()
    found = {}
    for line in text.splitlines():
        if line.startswith("chiasm_trace_spans_total{"):
            found[line.split('"')[1]] = int(float(line.rsplit(" ", 1)[1]))
    return found


@contextlib.asynccontextmanager
async def fronts(folder: Path) -> AsyncIterator[tuple[Front, Front]]:
    worker = WorkerConfig(
        model_id="demo",
        model_path=DEMO_MODEL,
        num_threads=1,
        socket_path=folder / "worker.sock",
    )
    with (
        collector() as endpoint,
        process(folder, "worker", "worker", worker),
        front(folder, "off", "") as off,
        front(folder, "on", endpoint) as on,
    ):
        yield off, on


async def measure(rounds: int) -> dict[str, Any]:
    rates: dict[str, list[float]] = {"off": [], "on": []}
    with tempfile.TemporaryDirectory(prefix="chiasm-") as scratch:
        async with fronts(Path(scratch)) as (off, on), aiohttp.ClientSession() as http:
            sides = {"off": off, "on": on}
            for side in sides.values():
                await ready(http, side)
                await tokens_a_second(http, side, 60_000)
            before = {name: side.cpu_ms() for name, side in sides.items()}
            for number in range(rounds):
                order = ("off", "on") if number % 2 else ("on", "off")
                for place, name in enumerate(order):
                    # New pictures for both, so that neither finds the other's in a cache.
                    seed = WAVES * STREAMS * (2 * number + place)
                    rates[name].append(await tokens_a_second(http, sides[name], seed))
                print(f"round {number + 1}: {rates['off'][-1]:.1f} off, {rates['on'][-1]:.1f} on")
            cpu = {name: side.cpu_ms() - before[name] for name, side in sides.items()}
            await asyncio.sleep(2.5)  # The last spans are on their way.
            sent = await spans(http, on)
    ratios = [on / off for off, on in zip(rates["off"], rates["on"], strict=True)]
    return {
        "tokens_per_second_off": round(statistics.median(rates["off"]), 1),
        "tokens_per_second_on": round(statistics.median(rates["on"]), 1),
        "ratio": round(statistics.median(ratios), 4),
        "ratio_quartiles": [round(each, 4) for each in statistics.quantiles(ratios, n=4)],
        "sidecar_cpu_ms_a_request_off": round(cpu["off"] / (rounds * WAVES * STREAMS), 2),
        "sidecar_cpu_ms_a_request_on": round(cpu["on"] / (rounds * WAVES * STREAMS), 2),
        "rounds": rounds,
        "streams": STREAMS,
        "tokens_a_stream": TOKENS,
        "waves_a_round": WAVES,
        "spans": sent,
        "timeline_us_a_step": round(timeline_us(), 2),
    }


def timeline_us() -> float:
    """Noting a step of 16 requests as the engine does."""
    timeline = Timeline()
    ids = [f"chatcmpl-{number:032x}#{number}" for number in range(16)]
    started = time.perf_counter()
    for number in range(NUM_STEPS):
        rows = tuple([Row(each, number, 1, True) for each in ids])
        timeline.step(Step(number, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, rows, (), 16, 0, 99))
    return (time.perf_counter() - started) / NUM_STEPS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--collector", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.collector:
        collect(arguments.collector)
        return
    publish("tracing_overhead", asyncio.run(measure(arguments.rounds)))


if __name__ == "__main__":
    main()
