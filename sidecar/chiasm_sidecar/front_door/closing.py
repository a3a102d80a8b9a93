"""Ends each connection with its next response while the pod drains.

A Service stops choosing a pod that goes, but leaves the connections it has to it; their clients
would go on using them until the worker is gone.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chiasm_sidecar.readiness import Readiness

_CLOSE = (b"connection", b"close")


class ClosesWhenDraining:
    """Wraps an application; uvicorn closes a connection whose response says so."""

    def __init__(self, app: ASGIApp, readiness: Readiness) -> None:
        self._app = app
        self._readiness = readiness

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on. Looks when its response starts, not when it came."""

        async def closing(message: Message) -> None:
            if self._readiness.draining and message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), _CLOSE]
            await send(message)

        await self._app(scope, receive, closing)
