"""What the kubelet asks: whether the process is to be started anew, and whether it may be asked.

Answered by a port of ours, not by kopf's: that one knows a single question, keeps its answer for
ten seconds and lets connections that ask nothing stay for ever.

Prometheus asks the same port.

Must not know: who leads, what stalls, why the webhook is late, what is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web

from chiasm_operator.port import Port

LIVE, READY, METRICS = "/healthz", "/readyz", "/metrics"


@dataclass(frozen=True)
class Report:
    """How the process is.

    Attributes:
        role: whether it leads, in words.
        num_resources: that it looks after.
        stalled: what only another process could mend, in a sentence.
        awaited: what keeps it from being asked, in a sentence.
    """

    role: str
    num_resources: int
    stalled: str | None = None
    awaited: str | None = None


class Health:
    """Answers with what `look` reports at that moment, and `expose` in the form asked for."""

    def __init__(
        self,
        host: str,
        port: int,
        look: Callable[[], Report],
        expose: Callable[[str], tuple[bytes, str]],
    ) -> None:
        self._look = look
        self._expose = expose
        routes = [
            web.get(LIVE, self._answer),
            web.get(READY, self._answer),
            web.get(METRICS, self._metrics),
        ]
        self.port = Port(host, port, routes)

    async def _answer(self, request: web.Request) -> web.Response:
        report = self._look()
        problem = report.stalled or (report.awaited if request.path == READY else None)
        if problem is not None:
            return web.json_response({"message": problem}, status=HTTPStatus.SERVICE_UNAVAILABLE)
        return web.json_response({"leader": report.role, "resources": report.num_resources})

    async def _metrics(self, request: web.Request) -> web.Response:
        data, content_type = self._expose(request.headers.get("accept", ""))
        return web.Response(body=data, headers={"content-type": content_type})
