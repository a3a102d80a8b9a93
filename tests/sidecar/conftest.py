"""A scripted worker on a real Unix socket, and a whole sidecar in front of it.

The scripted worker speaks the contract and does at will what a real one does only by accident:
dies in the middle, restarts as another incarnation, refuses, falls silent.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp import web
from chiasm_contract import messages
from chiasm_contract.checkup import CHECKUP_PATH, CheckupReport
from chiasm_contract.config import SidecarConfig
from chiasm_contract.errors import ChiasmError, InvalidRequest
from chiasm_contract.fingerprint import Identity, compute_fp, repr_fp
from chiasm_contract.messages import (
    FinishEvent,
    GenerateHead,
    IdentityReport,
    MediaFiles,
    ModelCard,
    TokenEvent,
    Usage,
)
from chiasm_contract.timeline import Anchor, Event, Recording, RequestSpans, Span
from chiasm_contract.trace_context import parse
from chiasm_sidecar.server import Running, listen, running
from PIL import Image

ANCHOR = Anchor(clock_seconds=0.0, wall_ns=10**18)
USAGE = Usage(prompt_tokens=20, completion_tokens=2, cached_tokens=4, image_tokens=16)
ANSWER = (
    TokenEvent(text="red", token_ids=(5,)),
    TokenEvent(text=" disc", token_ids=(6,)),
    FinishEvent(reason="stop", usage=USAGE),
)


FIELDS: dict[str, Any] = {
    "compute.weights.language": "a" * 64,
    "compute.weights.vision_encoder": "b" * 64,
    "compute.weights.projector": "c" * 64,
    "compute.model.config": "f" * 64,
    "compute.processor.config": "d" * 64,
    "compute.processor.resize_backend": "pillow 13.0.0",
    "compute.processor.library_version": "transformers 5.24.0",
    "compute.position.type": "mrope",
    "compute.position.theta": 10000.0,
    "compute.position.scaling": "unscaled",
    "compute.position.sections": [2, 3, 3],
    "compute.position.window": 0,
    "compute.compute_dtype": "float32",
    "compute.weight_quantization": "unquantized",
    "compute.calibration": "uncalibrated",
    "compute.attention_numerics": "torch",
    "repr.schema_version": 1,
    "repr.kv_dtype.text": "float32",
    "repr.kv_dtype.vision": "float32",
    "repr.scale_mode": "unscaled",
    "repr.layout": "block-major",
    "repr.block_size": 16,
    "repr.num_layers": 2,
    "repr.num_kv_heads": 2,
    "repr.head_dim": 16,
    "repr.parallel_degree": 1,
    "repr.parallel_rank": 0,
}


def identity(incarnation: str = "one", **changes: Any) -> IdentityReport:
    """A sound report of a worker: its digests are those of its fields."""
    fields = {**FIELDS, **changes}
    whole = Identity.from_fields(fields)
    return IdentityReport(
        compute_fp=compute_fp(whole.compute),
        repr_fp=repr_fp(whole.repr),
        incarnation=incarnation,
        fields=fields,
    )


@dataclass
class ScriptedWorker:
    """Plays the events of `answer`; a callable among them is awaited in its place."""

    socket_path: Path
    identity: IdentityReport = field(default_factory=identity)
    model_id: str = "demo"
    unhealthy: ChiasmError | None = None
    refusal: ChiasmError | None = None
    answer: tuple[Any, ...] = ANSWER
    requests: list[tuple[GenerateHead, MediaFiles]] = field(default_factory=list)
    abandoned: asyncio.Event = field(default_factory=asyncio.Event)
    num_open: int = 0
    traceparents: list[str | None] = field(default_factory=list)
    followed: set[str] = field(default_factory=set)
    spans: tuple[Span, ...] = (
        Span("prefill", 0.0, 1.0, -1, {"chunks": 1}),
        Span("prefill chunk", 0.0, 0.5, 0, {"tokens": 20}),
    )
    checkup: CheckupReport | ChiasmError = field(default_factory=CheckupReport)
    num_checkups: int = 0
    metrics_text: str = "# HELP w_total From the worker.\n# TYPE w_total counter\nw_total 3.0\n"
    metrics_type: str = "text/plain; version=0.0.4; charset=utf-8"
    _runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application(client_max_size=2**30)
        app.router.add_get("/health", self._health)
        app.router.add_get("/identity", self._identity)
        app.router.add_get("/model", self._model)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/timeline", self._timeline)
        app.router.add_get("/spans", self._spans)
        app.router.add_post("/generate", self._generate)
        app.router.add_post(CHECKUP_PATH, self._checkup)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(self.socket_path)).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None
        self.socket_path.unlink(missing_ok=True)

    async def busy(self) -> bool:
        return self.num_open > 0

    async def _health(self, _: web.Request) -> web.Response:
        return _fault(self.unhealthy) if self.unhealthy else web.Response()

    async def _identity(self, _: web.Request) -> web.Response:
        return web.json_response(text=self.identity.model_dump_json())

    async def _model(self, _: web.Request) -> web.Response:
        card = ModelCard(
            id=self.model_id,
            family="scripted",
            architecture="Scripted",
            max_model_len=2048,
        )
        return web.json_response(text=card.model_dump_json())

    async def _checkup(self, _: web.Request) -> web.Response:
        self.num_checkups += 1
        if isinstance(self.checkup, ChiasmError):
            return _fault(self.checkup)
        return web.json_response(text=self.checkup.model_dump_json())

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self.metrics_text.encode(), headers={"content-type": self.metrics_type}
        )

    async def _timeline(self, request: web.Request) -> web.Response:
        if request.query.get("last_seconds", "1") == "-1":
            return _fault(InvalidRequest("Seconds are above 0."))
        noted = Event(request.query.get("request", "some"), "receive", 0.0, 1.0)
        recording = Recording(part="worker", anchor=ANCHOR, events=(noted,))
        return web.json_response(text=recording.model_dump_json())

    async def _spans(self, request: web.Request) -> web.Response:
        given = self.spans if request.query["request"] in self.followed else ()
        told = RequestSpans(anchor=ANCHOR, spans=given)
        return web.json_response(text=told.model_dump_json())

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        head, files = messages.decode_request(await request.read())
        self.requests.append((head, files))
        self.traceparents.append(request.headers.get("traceparent"))
        context = parse(request.headers)
        if context is not None and context.sampled:
            self.followed.add(head.request_id)
        if self.refusal:
            return _fault(self.refusal)
        response = web.StreamResponse(
            headers={
                messages.INCARNATION_HEADER: self.identity.incarnation,
                messages.COMPUTE_FP_HEADER: self.identity.compute_fp,
            }
        )
        await response.prepare(request)
        self.num_open += 1
        try:
            for event in self.answer:
                if callable(event):
                    await event(request)
                else:
                    await response.write(event.model_dump_json().encode() + b"\n")
        except (asyncio.CancelledError, ConnectionResetError):
            self.abandoned.set()
            raise
        finally:
            self.num_open -= 1
        return response


def _fault(error: ChiasmError) -> web.Response:
    body = error.body()
    return web.json_response(text=body.model_dump_json(), status=body.status)


async def forever(_: web.Request) -> None:
    await asyncio.Event().wait()


async def cut(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 20) -> None:
    """Return once `condition` holds; a test that waits for ever fails."""
    async with asyncio.timeout(seconds):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.01)


@dataclass
class Pod:
    """A sidecar that listens, and what tests ask it."""

    worker: ScriptedWorker
    sidecar: Running
    url: str
    metrics_url: str
    http: aiohttp.ClientSession

    async def until(self, reason: str) -> dict[str, Any]:
        """Follow /ready until it gives `reason`."""
        async with asyncio.timeout(20):
            while True:
                async with self.http.get(f"{self.url}/ready") as response:
                    state: dict[str, Any] = await response.json()
                if state["reason"] == reason:
                    assert (response.status == 200) is (reason == "Ready")
                    return state
                await asyncio.sleep(0.01)

    async def chat(self, body: Any, **headers: str) -> tuple[int, dict[str, Any]]:
        """POST one chat request; status and JSON answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        address = f"{self.url}/v1/chat/completions"
        async with self.http.post(address, data=io.BytesIO(data), headers=headers) as response:
            return response.status, await response.json()

    def client(self) -> openai.AsyncOpenAI:
        """The official client, pointed here."""
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="-", max_retries=0)

    async def metric(self, name: str) -> float:
        """The value of one series, `name` as exposed, labels included."""
        async with self.http.get(f"{self.metrics_url}/metrics") as response:
            for line in (await response.text()).splitlines():
                if line.startswith(f"{name} "):
                    return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"{name} is not exposed")


StartPod = Callable[..., Awaitable[Pod]]


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[ScriptedWorker]:
    scripted = ScriptedWorker(tmp_path / "worker.sock")
    await scripted.start()
    yield scripted
    await scripted.stop()


@pytest.fixture
async def start_pod(worker: ScriptedWorker) -> AsyncIterator[StartPod]:
    async with contextlib.AsyncExitStack() as stack:

        async def start(wait_for: str = "Ready", **settings: Any) -> Pod:
            config = SidecarConfig(
                model_id="demo", worker_socket=worker.socket_path, host="127.0.0.1", **settings
            )
            api, metrics = listen("127.0.0.1", 0), listen("127.0.0.1", 0)
            urls = [f"http://127.0.0.1:{sock.getsockname()[1]}" for sock in (api, metrics)]
            sidecar = await stack.enter_async_context(running(config, api, metrics))
            http = await stack.enter_async_context(aiohttp.ClientSession())
            pod = Pod(worker, sidecar, *urls, http)
            await pod.until(wait_for)
            return pod

        yield start


@pytest.fixture
async def pod(start_pod: StartPod) -> Pod:
    return await start_pod()


def png(width: int = 32, height: int = 24, kind: str = "PNG", mode: str = "RGB") -> bytes:
    data = io.BytesIO()
    Image.new(mode, (width, height)).save(data, kind)
    return data.getvalue()


# Enough of a file for the sidecar, which decodes neither videos nor sounds.
MP4 = b"\x00\x00\x00\x18ftypisom and so on"
WEBM = b"\x1aE\xdf\xa3 and so on"
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt and so on"


def video_part(data: bytes = MP4) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": data_url(data, "video/mp4")}}


def sound_part(data: bytes = WAV, kind: str = "wav") -> dict[str, Any]:
    text = base64.b64encode(data).decode()
    return {"type": "input_audio", "input_audio": {"data": text, "format": kind}}


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def question(*urls: str, **fields: Any) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": "What is it?"}]
    parts += [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"model": "demo", "messages": [{"role": "user", "content": parts}], **fields}


@pytest.fixture
def ask() -> Callable[..., dict[str, Any]]:
    return question
