"""The two FastAPI applications of a pod: the API on :8000, metrics and state on :9100."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from chiasm_contract.checkup import CHECKUP_PATH
from chiasm_contract.errors import ChiasmError, UnknownModel
from chiasm_contract.messages import HeldNamespaces
from chiasm_contract.metric_forms import form_for
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chiasm_sidecar.checkup.looking import Checkups
from chiasm_sidecar.configuration.desk import Desk
from chiasm_sidecar.exposition import WorkerPart
from chiasm_sidecar.front_door import faults
from chiasm_sidecar.front_door.bodies import Bodies
from chiasm_sidecar.front_door.chat import ChatEndpoint
from chiasm_sidecar.front_door.client_waits import ClientGone
from chiasm_sidecar.front_door.schema import ChatRequest
from chiasm_sidecar.metrics import Metrics
from chiasm_sidecar.pod_state import pod_state
from chiasm_sidecar.readiness import Readiness
from chiasm_sidecar.recording.route import PATH as TIMELINE_PATH
from chiasm_sidecar.recording.route import TimelineRoute
from chiasm_sidecar.tenants.gate import Gate
from chiasm_sidecar.traffic.counting import CLIENT_CLOSED
from chiasm_sidecar.traffic.division import Division
from chiasm_sidecar.traffic.sharing import MAX_MESSAGE_BYTES, PATH, parse_message
from chiasm_sidecar.worker_client import WorkerClient

_Handler = TypeVar("_Handler", bound=Callable[..., Awaitable[Response]])
_REQUEST_SCHEMA = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": ChatRequest.model_json_schema()}},
    }
}


class _ChatResponse(Response):
    """Lets FastAPI route a request that ChatEndpoint answers on its own."""

    def __init__(self, endpoint: ChatEndpoint) -> None:
        self.endpoint = endpoint
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.endpoint(scope, receive, send)


def create_app(readiness: Readiness, gate: Gate, chat_endpoint: ChatEndpoint) -> FastAPI:
    """The API that clients of the model use."""
    app = _bare("Chiasm")
    created = int(time.time())

    @app.post("/v1/chat/completions", openapi_extra=_REQUEST_SCHEMA)
    async def chat_completions() -> Response:
        """Answer a conversation; OpenAI's chat completions."""
        return _ChatResponse(chat_endpoint)

    def model_fields() -> dict[str, object]:
        card = readiness.require().card
        return {
            "id": card.id,
            "object": "model",
            "created": created,
            "owned_by": "chiasm",
            "root": card.id,
            "parent": None,
            "max_model_len": card.max_model_len,
            "permission": [],
        }

    @_get(app, "/v1/models")
    async def models(request: Request) -> Response:
        """The one model of this pod."""
        gate.caller(request.headers)
        return _json({"object": "list", "data": [model_fields()]})

    @_get(app, "/v1/models/{model_id:path}")
    async def model(request: Request, model_id: str) -> Response:
        """The model by its name."""
        gate.caller(request.headers)
        fields = model_fields()
        if model_id != fields["id"]:
            raise UnknownModel(
                f"Model {model_id[:200]!r} is not served here; use {fields['id']!r}."
            )
        return _json(fields)

    @_get(app, "/health")
    async def health() -> Response:
        """Alive: this process answers."""
        return Response()

    @_get(app, "/ready")
    async def ready() -> Response:
        """Whether to send requests here, and why not."""
        state = readiness.state
        fields = {
            "ready": readiness.routable,
            "reason": state.reason,
            "message": readiness.public_message,
        }
        if state.ready and not readiness.routable:
            fields |= {"reason": "Draining", "message": "This pod is about to end."}
        return _json(fields, 200 if readiness.routable else 503)

    return app


def create_metrics_app(
    worker: WorkerClient,
    readiness: Readiness,
    metrics: Metrics,
    division: Division,
    desk: Desk,
    held: Callable[[], HeldNamespaces],
) -> FastAPI:
    """What Prometheus, the operator and other sidecars read."""
    app = _bare("Chiasm metrics")
    bodies = Bodies(MAX_MESSAGE_BYTES)

    @_get(app, "/metrics")
    async def exposition(request: Request) -> Response:
        """Everything this pod counts; without the worker's part while the worker is away."""
        form = form_for(request.headers.get("accept", ""))
        try:
            part = await worker.metrics(form)
        except ChiasmError:
            part = WorkerPart()
        data, content_type = metrics.exposition(part, form)
        return Response(data, headers={"content-type": content_type})

    @_get(app, "/state")
    async def state() -> Response:
        """The pod's state and identity, and what it says of its traffic and configuration."""
        whole = pod_state(readiness, division, desk)
        return Response(whole.model_dump_json(), media_type="application/json")

    @app.post("/-/reload")
    async def reload() -> Response:
        """Look at all sources of the configuration now; what they are after that look."""
        report = await desk.reload()
        return Response(report.model_dump_json(), media_type="application/json")

    @app.post(PATH)
    async def pins(request: Request) -> Response:
        """Another sidecar says which revisions conversations are with."""
        message = bodies.begin()
        try:
            body = await message.read(request.receive, request.headers.get("content-length", ""))
        except ClientGone:
            return Response(status_code=CLIENT_CLOSED)
        finally:
            message.release()
        division.heard(parse_message(body))
        return Response(status_code=204)

    @_get(app, "/namespaces")
    async def namespaces() -> Response:
        """What this pod's tiers hold, by digests."""
        return Response(held().model_dump_json(), media_type="application/json")

    return app


def add_looks_inside(app: FastAPI, timeline: TimelineRoute, checkups: Checkups) -> None:
    """What people with `chiasm` read, beside the metrics."""

    @_get(app, TIMELINE_PATH)
    async def recording(request: Request) -> Response:
        """What the pod did when, for `chiasm trace`."""
        return await timeline.answer(request.query_params)

    @app.post(CHECKUP_PATH)
    async def checkup() -> Response:
        """Look at the pod and its engine, which goes on serving; for `chiasm doctor`."""
        report = await checkups.report()
        return Response(report.model_dump_json(), media_type="application/json")


def _get(app: FastAPI, path: str) -> Callable[[_Handler], _Handler]:
    """Answers GET, and HEAD the way HTTP wants it: the same head without a body."""

    def register(handler: _Handler) -> _Handler:
        app.get(path)(handler)
        app.head(path, include_in_schema=False)(handler)
        return handler

    return register


def _bare(title: str) -> FastAPI:
    """FastAPI with OpenAI's error bodies, and without pages that load scripts from elsewhere."""
    app = FastAPI(title=title, docs_url=None, redoc_url=None)

    @app.exception_handler(ChiasmError)
    async def on_chiasm_error(_request: Request, error: ChiasmError) -> Response:
        return _fault(error, faults.status_of(error))

    @app.exception_handler(HTTPException)
    async def on_http_exception(request: Request, error: HTTPException) -> Response:
        words = f"{request.method} {request.url.path[:200]} is not part of this API."
        code = "method_not_allowed" if error.status_code == 405 else "not_found"
        response = _fault(ChiasmError(words, code=code), error.status_code)
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    async def on_bug(_request: Request, _error: Exception) -> Response:
        return _fault(ChiasmError("The server failed on this request; this is a bug."), 500)

    return app


def _fault(error: ChiasmError, status: int) -> Response:
    return Response(
        faults.body_of(error, status),
        status_code=status,
        headers=faults.headers_of(error),
        media_type="application/json",
    )


def _json(fields: Mapping[str, object], status: int = 200) -> Response:
    return Response(json.dumps(fields), status_code=status, media_type="application/json")
