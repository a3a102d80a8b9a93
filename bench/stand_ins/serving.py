"""What every worker without a model says in the worker's contract; how it generates is its own.

Must not know: what it is asked for, faults.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from chiasm_contract import messages
from chiasm_contract.messages import FinishEvent, IdentityReport, ModelCard, TokenEvent

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(model_id: str, identity: IdentityReport, generate: Handler) -> web.Application:
    """What listens on the socket."""
    card = ModelCard(id=model_id, family="none", architecture="None", max_model_len=4096)
    app = web.Application(client_max_size=2**30)
    for path, text in (
        ("/health", ""),
        ("/identity", identity.model_dump_json()),
        ("/model", card.model_dump_json()),
        ("/metrics", ""),
    ):
        app.router.add_get(path, _saying(text))
    app.router.add_post("/generate", generate)
    return app


def headers(identity: IdentityReport) -> dict[str, str]:
    """By which an answer says whose it is."""
    return {
        messages.INCARNATION_HEADER: identity.incarnation,
        messages.COMPUTE_FP_HEADER: identity.compute_fp,
    }


def line(event: TokenEvent | FinishEvent) -> bytes:
    """One event of an answer."""
    return event.model_dump_json().encode() + b"\n"


def _saying(text: str) -> Handler:
    async def respond(_: web.Request) -> web.Response:
        return web.Response(text=text)

    return respond
