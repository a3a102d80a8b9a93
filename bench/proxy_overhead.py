"""What the sidecar adds to a request and to a streamed token.

Two workers stand behind the same sidecar process in turn, and each is also asked directly over its
Unix socket, request by request in alternation, by the same client, in the same run:

- `instant`: a process that speaks the contract and answers at once (streams: every GAP_MS). It
  stamps each token with the time at which it writes it, so a token's way is measured on one clock.
- `engine`: the real worker with the demo model. Its own time is thousands of times what is looked
  for, so its readings come with the engine's own spread, and are a check, not the figure.

A request is one question about a 200x200 PNG, not streamed; its body is encoded beforehand in both
ways (base64 in JSON for the sidecar, framed bytes for the socket). Figures are differences of the
same quantile: quantile(through the sidecar) - quantile(direct). request_* and token_* are those of
`instant`. On a busy machine much of a difference is waiting for a core, so the sidecar's own
processor time for a request and for a token stands beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import io
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import uvicorn
import uvloop
from chiasm_contract import messages
from chiasm_contract.config import SidecarConfig, WorkerConfig
from chiasm_contract.messages import FinishEvent, ModelCard, TokenEvent, Usage
from chiasm_contract.sampling import Sampling
from PIL import Image
from reporting import publish
from stand_ins import identity_of_nobody
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

ROOT = Path(__file__).resolve().parent.parent
DEMO_MODEL = ROOT / "demo" / "model"
SIDE_PIXELS = 200
GAP_MS = 5
STREAM_TOKENS = 200
STAMP = re.compile(rb"@(\d+)@")
QUESTION = "How many circles are there?"

Asking = Callable[[], Awaitable[list[float]]]


def instant_worker(socket_path: str) -> None:
    """Serve the contract without a model; `seed` is the gap between tokens in microseconds."""
    identity = identity_of_nobody()
    card = ModelCard(id="demo", family="none", architecture="None", max_model_len=4096)

    async def generate(request: Request) -> StreamingResponse:
        head, _ = messages.decode_request(await request.body())
        sampling = head.sampling

        async def events() -> AsyncIterator[bytes]:
            for number in range(sampling.max_tokens or 1):
                if sampling.seed:
                    await asyncio.sleep(sampling.seed / 1e6)
                text = f"@{time.monotonic_ns()}@ "
                yield _line(TokenEvent(text=text, token_ids=(number,)))
            usage = Usage(prompt_tokens=80, completion_tokens=1, cached_tokens=0, image_tokens=64)
            yield _line(FinishEvent(reason="stop", usage=usage))

        headers = {
            messages.INCARNATION_HEADER: identity.incarnation,
            messages.COMPUTE_FP_HEADER: identity.compute_fp,
        }
        return StreamingResponse(events(), media_type=messages.EVENT_MEDIA_TYPE, headers=headers)

    def answer(text: str) -> Callable[[Request], Awaitable[Response]]:
        async def respond(_: Request) -> Response:
            return Response(text)

        return respond

    routes = [
        Route("/health", answer("")),
        Route("/identity", answer(identity.model_dump_json())),
        Route("/model", answer(card.model_dump_json())),
        Route("/metrics", answer("")),
        Route("/generate", generate, methods=["POST"]),
    ]
    uvicorn.run(Starlette(routes=routes), uds=socket_path, log_level="warning", access_log=False)


def _line(event: TokenEvent | FinishEvent) -> bytes:
    return event.model_dump_json().encode() + b"\n"


@dataclass(frozen=True)
class Stack:
    """A worker and the sidecar in front of it."""

    socket_path: Path
    url: str
    sidecar_pid: int

    def cpu_ms(self) -> float:
        """Processor time that the sidecar has used so far."""
        ran = Path(f"/proc/{self.sidecar_pid}/schedstat").read_text().split()[0]
        return int(ran) / 1e6


@contextlib.contextmanager
def started(worker: list[str], folder: Path) -> Iterator[Stack]:
    """Both processes, ended together."""
    socket_path = folder / "worker.sock"
    port = random.randint(20_000, 50_000)
    sidecar = SidecarConfig(
        model_id="demo",
        worker_socket=socket_path,
        host="127.0.0.1",
        api_port=port,
        metrics_port=port + 1,
    )
    (folder / "sidecar.json").write_text(sidecar.model_dump_json())
    front = [sys.executable, "-m", "chiasm_cli", "sidecar", "run", "--config"]
    commands = [worker, [*front, str(folder / "sidecar.json")]]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE) for command in commands]
    try:
        yield Stack(socket_path, f"http://127.0.0.1:{port}", processes[1].pid)
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.communicate(timeout=30)


async def until_ready(stack: Stack, http: aiohttp.ClientSession) -> None:
    """Wait for the sidecar's word."""
    async with asyncio.timeout(180):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get(f"{stack.url}/ready") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.1)


def picture() -> bytes:
    """A PNG of some 30 kB: noise over a gradient, the size of a demo picture."""
    image = Image.radial_gradient("L").resize((SIDE_PIXELS, SIDE_PIXELS)).convert("RGB")
    noise = Image.effect_noise((SIDE_PIXELS, SIDE_PIXELS), 8).convert("RGB")
    data = io.BytesIO()
    Image.blend(image, noise, 0.1).save(data, "PNG")
    return data.getvalue()


def asking(
    stack: Stack, front: aiohttp.ClientSession, direct: aiohttp.ClientSession, **sampling: Any
) -> tuple[Asking, Asking]:
    """The same question, through the sidecar and directly."""
    image = picture()
    stream = sampling.pop("stream")
    url = f"data:image/png;base64,{base64.b64encode(image).decode()}"
    content = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": QUESTION},
    ]
    turn = {"role": "user", "content": content}
    request = {"model": "demo", "messages": [turn], "stream": stream, **sampling}
    body = json.dumps(request).encode()
    parts = (messages.ImagePart(index=0), messages.TextPart(text=QUESTION))
    head = messages.GenerateHead(
        request_id="bench",
        messages=(messages.ChatMessage(role="user", content=parts),),
        sampling=Sampling(**sampling),
    )
    framed = messages.encode_request(head, messages.MediaFiles(images=(image,)))

    def ask(session: aiohttp.ClientSession, address: str, data: bytes) -> Asking:
        async def once() -> list[float]:
            begun = time.monotonic_ns()
            delays = []
            async with session.post(
                address, data=data, headers={"content-type": "application/json"}
            ) as response:
                async for chunk in response.content.iter_any():
                    now = time.monotonic_ns()
                    delays += [(now - int(stamp)) / 1e6 for stamp in STAMP.findall(chunk)]
                if response.status != 200:
                    raise RuntimeError(f"{address} answered {response.status}")
            return delays if stream else [(time.monotonic_ns() - begun) / 1e6]

        return once

    return (
        ask(front, f"{stack.url}/v1/chat/completions", body),
        ask(direct, "http://worker/generate", framed),
    )


async def in_turn(ways: tuple[Asking, Asking], num_rounds: int) -> tuple[list[float], list[float]]:
    """Both ways alternately, each first as often as the other; milliseconds of each."""
    readings: tuple[list[float], list[float]] = ([], [])
    for number in range(num_rounds):
        for index in (0, 1) if number % 2 else (1, 0):
            readings[index].extend(await ways[index]())
    return readings


def quantiles(milliseconds: list[float]) -> tuple[float, float]:
    """p50 and p99."""
    return statistics.median(milliseconds), statistics.quantiles(milliseconds, n=100)[98]


def added(name: str, through: list[float], direct: list[float]) -> dict[str, float]:
    """The difference at p50 and p99, and both sides of it."""
    figures: dict[str, float] = {}
    for label, a, b in zip(("p50", "p99"), quantiles(through), quantiles(direct), strict=True):
        figures[f"{name}_{label}_ms"] = round(a - b, 3)
        figures[f"{name}_{label}_direct_ms"] = round(b, 3)
    return figures


async def measure(stack: Stack, num_requests: int, streams: int) -> dict[str, float]:
    """The figures of one stack."""
    connector = aiohttp.UnixConnector(path=str(stack.socket_path))
    async with (
        aiohttp.ClientSession() as front,
        aiohttp.ClientSession(connector=connector) as direct,
    ):
        await until_ready(stack, front)
        ways = asking(stack, front, direct, stream=False, max_tokens=1, temperature=0)
        await in_turn(ways, 20)  # warm
        cpu_ms = stack.cpu_ms()
        figures = added("request", *await in_turn(ways, num_requests))
        figures["request_cpu_ms"] = round((stack.cpu_ms() - cpu_ms) / num_requests, 3)
        if streams:
            gap = GAP_MS * 1000
            ways = asking(stack, front, direct, stream=True, max_tokens=STREAM_TOKENS, seed=gap)
            await in_turn(ways, 1)
            cpu_ms = stack.cpu_ms()
            figures |= added("token", *await in_turn(ways, streams))
            spent = stack.cpu_ms() - cpu_ms
            figures["token_cpu_ms"] = round(spent / streams / STREAM_TOKENS, 3)
    return figures


def run(worker: Callable[[Path], list[str]], num_requests: int, streams: int) -> dict[str, float]:
    """Start one stack, measure, end it."""
    with tempfile.TemporaryDirectory(prefix="chiasm-bench-") as folder:
        path = Path(folder)
        with started(worker(path), path) as stack:
            return uvloop.run(measure(stack, num_requests, streams))


def instant_command(folder: Path) -> list[str]:
    return [sys.executable, __file__, "--instant-worker", str(folder / "worker.sock")]


def engine_command(folder: Path) -> list[str]:
    config = WorkerConfig(
        model_id="demo", model_path=DEMO_MODEL, socket_path=folder / "worker.sock"
    )
    (folder / "worker.json").write_text(config.model_dump_json())
    command = [sys.executable, "-m", "chiasm_cli", "worker", "run", "--config"]
    return [*command, str(folder / "worker.json")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instant-worker", metavar="SOCKET", help=argparse.SUPPRESS)
    parser.add_argument("--requests", type=int, default=1500, help="to the instant worker")
    parser.add_argument("--streams", type=int, default=10, help="to the instant worker")
    parser.add_argument("--engine-requests", type=int, default=150)
    options = parser.parse_args()
    if options.instant_worker:
        instant_worker(options.instant_worker)
        return
    figures: dict[str, Any] = dict(run(instant_command, options.requests, options.streams))
    print(f"instant worker: {figures}")
    if options.engine_requests:
        figures["engine"] = run(engine_command, options.engine_requests, 0)
        print(f"demo model: {figures['engine']}")
    figures |= {"num_requests": options.requests, "picture_bytes": len(picture())}
    publish("proxy_overhead", figures)


if __name__ == "__main__":
    main()
