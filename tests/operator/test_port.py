"""Who holds a connection to the operator and asks nothing, and who asks beside a crowd of them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import aiohttp
import pytest
from aiohttp import web
from chiasm_operator import port as ports
from chiasm_operator.port import Port

Connect = Callable[..., Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
ASKED = b"GET /a HTTP/1.1\r\nhost: a\r\n\r\n"


async def answer(_: web.Request) -> web.Response:
    return web.Response(text="here")


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    made = Port("127.0.0.1", 0, [web.get("/a", answer)])
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:

        async def one(
            port: Port, said: bytes = b""
        ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
            stack.callback(writer.close)
            writer.write(said)
            await writer.drain()
            return reader, writer

        yield one


async def ended(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(20):
        await reader.read()


async def ask(port: Port) -> int:
    async with aiohttp.ClientSession() as http:
        url = f"http://127.0.0.1:{port.number}/a"
        async with http.get(url, timeout=aiohttp.ClientTimeout(20)) as response:
            return response.status


@pytest.mark.parametrize(
    "said",
    [b"", b"GET", ASKED[:-2], ASKED, ASKED + ASKED[:-2]],
    ids=["nothing", "a word", "half a request", "no second request", "half a second request"],
)
async def test_who_says_no_more_is_cut_off(
    said: bytes, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "QUIET_SECONDS", 0.2)
    port = Port("127.0.0.1", 0, [web.get("/a", answer)])
    await port.open()
    reader, _ = await connect(port, said)
    await ended(reader)
    assert port.num_connections == 0
    await port.close()


async def test_a_handshake_that_does_not_come_is_not_waited_for(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "HANDSHAKE_SECONDS", 0.2)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    port = Port("127.0.0.1", 0, [web.get("/a", answer)], tls=tls)
    await port.open()
    for said in (b"", b"\x16\x03\x01"):
        reader, _ = await connect(port, said)
        await ended(reader)
    assert port.num_connections == 0
    await port.close()


async def test_a_crowd_that_is_silent_keeps_nobody_out(
    port: Port, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "MAX_CONNECTIONS", 8)
    steady, writer = await connect(port, ASKED)
    assert b"200 OK" in await steady.readuntil(b"here")
    silent = [(await connect(port))[0] for _ in range(40)]
    assert await ask(port) == 200
    assert port.num_connections <= 8
    for reader in silent[:30]:  # those that came first
        await ended(reader)
    writer.write(ASKED)
    assert b"200 OK" in await steady.readuntil(b"here"), "who has asked stays"


async def test_of_too_many_that_asked_the_oldest_go(
    port: Port, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "MAX_CONNECTIONS", 4)
    held = []
    for _ in range(12):
        reader, _ = await connect(port, ASKED)
        await reader.readuntil(b"here")
        held.append(reader)
    assert port.num_connections <= 4
    for reader in held[:8]:
        await ended(reader)


async def test_a_crowd_in_its_handshake_is_bounded_too(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "MAX_CONNECTIONS", 4)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    port = Port("127.0.0.1", 0, [web.get("/a", answer)], tls=tls)
    await port.open()
    held = [(await connect(port))[0] for _ in range(12)]
    for reader in held[:8]:
        await ended(reader)
    assert port.num_connections <= 4
    await port.close()
    for reader in held:
        await ended(reader)
