"""What goes to another sidecar, and over which connections."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from chiasm_contract.names import REVISION_HEADER
from chiasm_sidecar.traffic.handover import (
    OF_CANARY,
    OF_LAST,
    OF_STABLE,
    FoundFaulty,
    Handover,
    NotAnswered,
)
from chiasm_sidecar.traffic.routing import Place

HEADERS = {
    "host": "public.example",
    "content-length": "7",
    "cookie": "secret=1",
    "authorization": "Bearer key",
    "traceparent": "00-ab-cd-01",
    "x-request-id": "mine",
    REVISION_HEADER: "whatever a client wrote",
}


@asynccontextmanager
async def service(status: int = 200) -> AsyncIterator[tuple[Place, list[web.Request]]]:
    """Another revision's Service."""
    seen: list[web.Request] = []

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        seen.append(request)
        return web.json_response({}, status=status, headers={"location": "/elsewhere"})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield Place("v1-canary", f"{host}:{port}"), seen
    finally:
        await runner.cleanup()


async def test_only_what_a_sidecar_reads_is_passed() -> None:
    async with service() as (place, seen), Handover() as handover:
        async with handover.ask(place, b"a body", HEADERS, OF_STABLE) as response:
            await response.read()
        (request,) = seen
        assert await request.read() == b"a body"
        assert request.headers[REVISION_HEADER] == "v1-canary"
        assert request.headers["host"] == place.address
        for name in ("authorization", "traceparent", "x-request-id"):
            assert request.headers[name] == HEADERS[name]
        assert "cookie" not in request.headers


async def test_connections_are_used_again_but_not_for_ever() -> None:
    async with service() as (place, seen), Handover() as handover:
        for _ in range(64):
            async with handover.ask(place, b"", HEADERS, OF_STABLE) as response:
                await response.read()
        connections = {id(request.protocol) for request in seen}
        assert 4 <= len(connections) <= 5


@pytest.mark.parametrize("of", [OF_CANARY, OF_STABLE, OF_LAST], ids=["canary", "stable", "last"])
@pytest.mark.parametrize("status", [200, 307, 400, 401, 404, 413, 418, 421, 429, 500, 502, 503])
async def test_which_answers_are_taken(status: int, of: tuple[int, ...]) -> None:
    async with service(status) as (place, seen), Handover() as handover:
        if status in of:
            async with handover.ask(place, b"", HEADERS, of) as response:
                assert response.status == status
        else:
            with pytest.raises(NotAnswered, match=f"status {status}") as raised:
                async with handover.ask(place, b"", HEADERS, of):
                    pass
            assert isinstance(raised.value, FoundFaulty) is (status in (400, 413))
        assert len(seen) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the options have other names elsewhere")
async def test_a_node_that_vanishes_is_noticed() -> None:
    ended = asyncio.Event()

    async def begin_an_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n")
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(begin_an_answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    place = Place("v1-canary", f"{host}:{port}")
    async with (
        server,
        Handover() as handover,
        handover.ask(place, b"", HEADERS, OF_STABLE) as response,
    ):
        assert response.connection is not None
        assert response.connection.transport is not None
        made = response.connection.transport.get_extra_info("socket")
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for option, value in (
            (socket.TCP_USER_TIMEOUT, 10_000),
            (socket.TCP_KEEPIDLE, 5),
            (socket.TCP_KEEPINTVL, 2),
            (socket.TCP_KEEPCNT, 3),
        ):
            assert made.getsockopt(socket.IPPROTO_TCP, option) == value
    async with asyncio.timeout(20):
        await ended.wait()
