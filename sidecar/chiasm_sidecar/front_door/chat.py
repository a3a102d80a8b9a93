"""One chat request from its first byte to the last byte of its answer.

Works on ASGI's receive and send directly, for a stream costs one send a token and every layer in
between would be paid for each. Must not know: how a body is parsed (intake), how an answer is
written (answers), how the worker is reached (worker_client).
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from http import HTTPStatus

from chiasm_contract.config import SidecarConfig
from chiasm_contract.errors import ChiasmError, InvalidRequest, RequestTooLarge
from chiasm_contract.messages import FinishEvent, GenerateHead, TokenEvent
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from chiasm_sidecar.front_door import faults
from chiasm_sidecar.front_door.answers import AnswerHead, EventStream, complete, fault_event
from chiasm_sidecar.front_door.client_waits import ClientGone, Waiting, client_waits
from chiasm_sidecar.front_door.intake import Prepared, prepare
from chiasm_sidecar.metrics import Metrics
from chiasm_sidecar.readiness import Readiness
from chiasm_sidecar.worker_client import WorkerClient, WorkerGone

log = logging.getLogger("chiasm.sidecar.chat")
access = logging.getLogger("chiasm.sidecar.access")

CLIENT_CLOSED = 499
REQUEST_ID_HEADER = "x-request-id"
# Parsing more than this takes longer than a hop to a thread costs.
_INLINE_BODY_BYTES = 256 * 1024
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")

_JSON = (b"content-type", b"application/json")
_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)

Batches = AsyncIterator[list[TokenEvent | FinishEvent]]


@dataclass
class Exchange:
    """What is known of one request so far, for metrics and the access log."""

    receive: Receive
    send: Send
    request_id: str = ""
    answer_id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    started: float = field(default_factory=time.perf_counter)
    status: int = int(HTTPStatus.OK)
    modality: str = "unknown"
    user: str | None = None
    finish: FinishEvent | None = None
    response_started: bool = False

    async def start(self, status: int, *headers: tuple[bytes, bytes]) -> None:
        """Send the response's status and headers."""
        self.status = status
        self.response_started = True
        every = list(headers)
        if self.request_id:
            every.append((REQUEST_ID_HEADER.encode(), self.request_id.encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": every})

    async def body(self, data: bytes, more: bool = False) -> None:
        """Send a piece of the response's body."""
        await self.send({"type": "http.response.body", "body": data, "more_body": more})


class ChatEndpoint:
    """`POST /v1/chat/completions`, streamed or not."""

    def __init__(
        self, config: SidecarConfig, worker: WorkerClient, readiness: Readiness, metrics: Metrics
    ) -> None:
        self._config = config
        self._worker = worker
        self._readiness = readiness
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        exchange = Exchange(receive, send)
        self._metrics.in_progress.inc()
        try:
            await self._answer(exchange, Headers(scope=scope))
        except ClientGone:
            exchange.status = CLIENT_CLOSED
            self._metrics.count("vllm:request_success_total", finished_reason="abort")
        except ChiasmError as error:
            await self._refuse(exchange, error)
        except Exception:
            log.exception("request failed", extra={"fields": {"request_id": exchange.request_id}})
            await self._refuse(
                exchange, ChiasmError("The server failed on this request; this is a bug.")
            )
        finally:
            self._metrics.in_progress.dec()
            self._record(exchange)

    async def _answer(self, exchange: Exchange, headers: Headers) -> None:
        exchange.request_id = _request_id(headers)
        self._readiness.require()
        try:
            async with asyncio.timeout(self._config.request_timeout_seconds):
                body = await self._read(exchange, headers)
        except TimeoutError as error:
            raise InvalidRequest(
                f"The body did not arrive within {self._config.request_timeout_seconds:g} s.",
                code="request_timeout",
            ) from error
        exchange.started = time.perf_counter()
        async with client_waits(exchange.receive) as waiting:
            prepared = await self._prepare(body)
            exchange.modality = prepared.modality
            exchange.user = prepared.user
            try:
                async with asyncio.timeout(self._config.request_timeout_seconds):
                    await self._generate(exchange, prepared, waiting)
            except TimeoutError as error:
                raise WorkerGone(
                    f"The answer took longer than {self._config.request_timeout_seconds:g} s; "
                    "ask for fewer tokens.",
                    "timeout",
                ) from error

    async def _read(self, exchange: Exchange, headers: Headers) -> bytes:
        """The whole body, refused as soon as it is known to be too large."""
        limit = self._config.max_body_bytes
        too_large = RequestTooLarge(
            f"The request's body is larger than {limit} bytes. Send smaller or fewer pictures."
        )
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > limit:
            raise too_large
        pieces, num_bytes, more = [], 0, True
        while more:
            message = await exchange.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            num_bytes += len(message.get("body", b""))
            if num_bytes > limit:
                raise too_large
            pieces.append(message.get("body", b""))
            more = message.get("more_body", False)
        self._metrics.body_bytes.observe(num_bytes)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _prepare(self, body: bytes) -> Prepared:
        arguments = (body, self._config.model_id, self._config.images)
        if len(body) <= _INLINE_BODY_BYTES:
            return prepare(*arguments)
        return await asyncio.to_thread(prepare, *arguments)

    async def _generate(self, exchange: Exchange, prepared: Prepared, waiting: Waiting) -> None:
        admission = self._readiness.require()
        head = GenerateHead(
            request_id=exchange.answer_id,
            messages=prepared.messages,
            sampling=prepared.sampling,
        )
        pictures = [picture.data for picture in prepared.pictures]
        identity = admission.identity
        async with self._worker.generate(head, pictures, identity.incarnation) as batches:
            self._metrics.admitted(prepared.pictures)
            answer = AnswerHead(exchange.answer_id, self._config.model_id, identity.compute_fp)
            if prepared.stream:
                encoder = EventStream(answer, prepared.include_usage)
                await self._stream(exchange, batches, encoder, waiting)
            else:
                await self._collect(exchange, batches, answer, waiting)

    async def _stream(
        self, exchange: Exchange, batches: Batches, encoder: EventStream, waiting: Waiting
    ) -> None:
        """Pass each piece of text on as it comes."""
        last_text = 0.0
        async for batch in batches:
            pieces = []
            for event in batch:
                if isinstance(event, TokenEvent):
                    pieces.append(encoder.token(event))
                else:
                    exchange.finish = event
                    pieces.append(encoder.finish(event))
                    waiting.end()
            last_text = self._observe(exchange, batch, last_text)
            if not exchange.response_started:
                pieces.insert(0, encoder.first())
                await exchange.start(200, *_STREAM_HEADERS)
            data = b"".join(pieces)
            if data:
                await exchange.body(data, more=exchange.finish is None)

    async def _collect(
        self, exchange: Exchange, batches: Batches, answer: AnswerHead, waiting: Waiting
    ) -> None:
        """Gather the whole answer and send it at once."""
        tokens: list[TokenEvent] = []
        last_text = 0.0
        async for batch in batches:
            last_text = self._observe(exchange, batch, last_text)
            for event in batch:
                if isinstance(event, TokenEvent):
                    tokens.append(event)
                else:
                    exchange.finish = event
        if exchange.finish is None:
            raise ChiasmError("The answer has no end; this is a bug.")
        data = complete(answer, tokens, exchange.finish)
        waiting.end()
        await self._send_json(exchange, 200, data)

    def _observe(
        self, exchange: Exchange, batch: list[TokenEvent | FinishEvent], last_text: float
    ) -> float:
        """Note when text came; returns the time of the latest."""
        if not isinstance(batch[0], TokenEvent):
            return last_text
        now = time.perf_counter()
        if last_text:
            self._metrics.inter_token_latency.observe(now - last_text)
        else:
            self._metrics.time_to_first_token.observe(now - exchange.started)
        return now

    async def _refuse(self, exchange: Exchange, error: ChiasmError) -> None:
        self._count_failure(error)
        status = faults.status_of(error)
        if exchange.response_started:  # only a stream begins before it is known how it ends
            exchange.status = status
            await exchange.body(fault_event(error))
            return
        headers = [(k.encode(), v.encode()) for k, v in faults.headers_of(error).items()]
        await self._send_json(exchange, status, faults.body_of(error, status), *headers)

    async def _send_json(
        self, exchange: Exchange, status: int, data: bytes, *headers: tuple[bytes, bytes]
    ) -> None:
        length = (b"content-length", str(len(data)).encode())
        await exchange.start(status, _JSON, length, *headers)
        await exchange.body(data)

    def _count_failure(self, error: ChiasmError) -> None:
        if isinstance(error, WorkerGone):
            self._metrics.count("chiasm_sidecar_worker_failures_total", reason=error.reason)
            self._readiness.doubt()

    def _record(self, exchange: Exchange) -> None:
        """Count one request, and write its line where the access log is on."""
        seconds = time.perf_counter() - exchange.started
        self._metrics.count(
            "chiasm_sidecar_requests_total", code=str(exchange.status), modality=exchange.modality
        )
        finish = exchange.finish
        if finish is not None and exchange.status == HTTPStatus.OK:
            self._metrics.finished(finish.reason, finish.usage)
            self._metrics.request_latency.observe(seconds)
        if self._config.access_log:
            fields: dict[str, object] = {
                "request_id": exchange.request_id,
                "answer_id": exchange.answer_id,
                "status": exchange.status,
                "modality": exchange.modality,
                "seconds": round(seconds, 4),
            }
            if finish is not None:
                fields |= finish.usage.model_dump()
            if exchange.user is not None:
                fields["user"] = exchange.user
            access.info("chat", extra={"fields": fields})


def _request_id(headers: Headers) -> str:
    """The caller's X-Request-Id, or a new one.

    Raises: InvalidRequest when the caller's cannot be echoed and logged safely.
    """
    given = headers.get(REQUEST_ID_HEADER)
    if given is None:
        return uuid.uuid4().hex
    if not _REQUEST_ID.fullmatch(given):
        raise InvalidRequest(
            "The header X-Request-Id takes 1 to 128 letters, digits or ._:/+=@- .",
            param="X-Request-Id",
        )
    return given
