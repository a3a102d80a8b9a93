"""A collector of traces on a real port, and the spans that it was sent, as a tree."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True)
class Received:
    """One span."""

    service: str
    resource: dict[str, Any]
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    failed: bool
    attributes: dict[str, Any]


@dataclass
class Collector:
    """What was received; `status` is what it answers."""

    url: str = ""
    status: int = 200
    spans: list[Received] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    async def receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.bodies.append(body)
        if self.status == 200:
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = _attributes(group.resource.attributes)
                for scope in group.scope_spans:
                    self.spans += [_received(resource, span) for span in scope.spans]
        return web.Response(status=self.status)

    async def until(self, condition: Callable[[list[Received]], bool]) -> list[Received]:
        async with asyncio.timeout(30):
            while not condition(self.spans):  # noqa: ASYNC110 - requests come in tasks of aiohttp
                await asyncio.sleep(0.02)
        return self.spans

    async def named(self, *names: str) -> list[Received]:
        """All spans, once there is one of each of these names."""
        return await self.until(lambda spans: set(names) <= {span.name for span in spans})

    def children(self, parent: Received) -> list[Received]:
        found = [span for span in self.spans if span.parent_id == parent.span_id]
        return sorted(found, key=lambda span: span.start)

    def one(self, name: str) -> Received:
        (found,) = [span for span in self.spans if span.name == name]
        return found


def _received(resource: dict[str, Any], span: Any) -> Received:
    return Received(
        service=resource["service.name"],
        resource=resource,
        name=span.name,
        kind=span.kind,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        failed=span.status.code == Status.STATUS_CODE_ERROR,
        attributes=_attributes(span.attributes),
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    which = value.WhichOneof("value")
    if which == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, which)


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector = Collector()
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/traces", collector.receive)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    collector.url = f"http://{host}:{port}"
    try:
        yield collector
    finally:
        await runner.cleanup()
