"""The worker's HTTP surface on a Unix socket.

The socket answers from the first moment: /health says 503 with a sentence while the model loads,
or for good when it could not be loaded, so that whoever stands in front can tell why.

Must not know: how anything is computed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator

from chiasm_contract.checkup import CHECKUP_PATH
from chiasm_contract.config import WorkerConfig
from chiasm_contract.errors import ChiasmError, InvalidRequest, RequestTooLarge
from chiasm_contract.messages import (
    COMPUTE_FP_HEADER,
    EVENT_MEDIA_TYPE,
    INCARNATION_HEADER,
    MAX_HEAD_BYTES,
    ErrorEvent,
    decode_request,
)
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from chiasm_worker.generation import Event
from chiasm_worker.metrics import exposition
from chiasm_worker.serving import WorkerState
from chiasm_worker.timeline_routes import answer_spans, answer_timeline, begin

logger = logging.getLogger(__name__)

# The status for a client that has gone: nobody reads it.
_NOBODY = 204


class EventStream(Response):
    """NDJSON events, sent as they come; the source is closed as soon as the client has gone."""

    media_type = EVENT_MEDIA_TYPE

    def __init__(
        self, first: list[Event], rest: AsyncGenerator[list[Event]], headers: dict[str, str]
    ) -> None:
        super().__init__(headers=headers)
        del self.headers["content-length"]
        self._first = first
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the source ends or the client goes."""
        sending = asyncio.ensure_future(self._send_all(send))
        leaving = asyncio.ensure_future(_disconnect(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            leaving.cancel()
            sending.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await self._rest.aclose()

    async def _send_all(self, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        await send(_body(self._first))
        try:
            async for events in self._rest:
                await send(_body(events))
        except ChiasmError as error:
            await send(_body([ErrorEvent(error=error.body())]))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _body(events: list[Event]) -> dict[str, object]:
    lines = "".join(event.model_dump_json() + "\n" for event in events)
    return {"type": "http.response.body", "body": lines.encode(), "more_body": True}


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def create_app(state: WorkerState) -> Starlette:
    """The routes over one worker's state."""

    async def health(_: Request) -> Response:
        state.require()
        return JSONResponse({"status": "ok"})

    async def identity(_: Request) -> Response:
        return _json(state.identity_report())

    async def model(_: Request) -> Response:
        return _json(state.require().card)

    async def metrics(request: Request) -> Response:
        engine, accept = state.require().service.engine, request.headers.get("accept", "")
        data, content_type = exposition(engine, state.config.model_id, accept)
        return Response(data, headers={"content-type": content_type})

    async def timeline(request: Request) -> Response:
        return await answer_timeline(state.require().service.engine, request.query_params)

    async def spans(request: Request) -> Response:
        return answer_spans(state.require().service.engine, request.query_params)

    async def generate(request: Request) -> Response:
        state.require()
        started = time.perf_counter()
        try:
            body = await _read_body(request, state.config)
        except ClientDisconnect:
            return Response(status_code=_NOBODY)
        try:
            head, files = decode_request(body)
        except ValidationError as error:
            raise InvalidRequest(_first_problem(error)) from error
        serving = state.require()  # Now: another model may have come while the body did.
        begin(serving.service.engine.timeline, head.request_id, started, request.headers)
        events = serving.generation.events(head, files)
        answers = {
            INCARNATION_HEADER: state.incarnation,
            COMPUTE_FP_HEADER: serving.identity.compute_fp,
        }
        del body, files  # Many requests may wait here, each with megabytes of files.
        first = await _first_batch(events, request.receive)
        if first is None:
            return Response(status_code=_NOBODY)
        return EventStream(first, events, answers)

    async def reload(_: Request) -> Response:
        await state.reload()
        return _json(state.identity_report())

    async def checkup(_: Request) -> Response:
        return _json(await state.checkup())

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/identity", identity),
            Route("/model", model),
            Route("/metrics", metrics),
            Route("/timeline", timeline),
            Route("/spans", spans),
            Route("/generate", generate, methods=["POST"]),
            Route("/-/reload", reload, methods=["POST"]),
            Route(CHECKUP_PATH, checkup, methods=["POST"]),
        ],
        exception_handlers={ChiasmError: _refuse, Exception: _fail},
    )


async def _first_batch(events: AsyncGenerator[list[Event]], receive: Receive) -> list[Event] | None:
    """The first events, or None if the client goes before there are any.

    Waiting for them before the answer's status is sent lets a faulty request end in a 4xx.
    """
    first = asyncio.ensure_future(anext(events))
    leaving = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((first, leaving), return_when=asyncio.FIRST_COMPLETED)
        return first.result() if first.done() else None
    finally:
        leaving.cancel()
        first.cancel()
        await asyncio.gather(first, leaving, return_exceptions=True)


async def _read_body(request: Request, config: WorkerConfig) -> bytes:
    limit = config.max_file_bytes + MAX_HEAD_BYTES
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise RequestTooLarge(f"The request has more than {limit} bytes; send less.")
        parts.append(part)
    return b"".join(parts)


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where or 'The head'}: {problem['msg']}."


def _json(message: BaseModel) -> Response:
    return Response(message.model_dump_json(), media_type="application/json")


async def _fail(_: Request, error: Exception) -> Response:
    """A fault of ours; the server logs its traceback, the client gets no detail."""
    body = ChiasmError("The worker failed on this request; this is a bug in it.").body()
    return JSONResponse(body.model_dump(), status_code=body.status)


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, ChiasmError)  # noqa: S101 - the handler is registered for it
    body = error.body()
    headers = {}
    if body.retry_after_seconds is not None:
        headers["retry-after"] = str(body.retry_after_seconds)
    return JSONResponse(body.model_dump(), status_code=body.status, headers=headers)
