"""Another sidecar's answer on its way to the client, when the connection behind it breaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from chiasm_contract.traffic import WHOLE, Version

from tests.sidecar.conftest import question, until
from tests.sidecar.traffic.conftest import Fleet
from tests.sidecar.traffic.plans import CANARY
from tests.sidecar.traffic.test_two_revisions import say

CHUNK = {"choices": [{"index": 0, "delta": {"content": "blue disc"}}]}
ANSWER = f"data: {json.dumps(CHUNK)}\n\ndata: [DONE]\n\n".encode()
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@asynccontextmanager
async def canary_without_a_last_chunk(breaks: bool) -> AsyncIterator[Version]:
    """Sends a whole answer, but never says that nothing follows."""

    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + f"{len(ANSWER):x}\r\n".encode() + ANSWER + b"\r\n")
        await writer.drain()
        if not breaks:
            await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield Version(revision=CANARY, address=f"{host}:{port}")
        async with asyncio.timeout(20):
            await ended.wait()


@pytest.mark.parametrize("breaks", [True, False])
async def test_what_breaks_behind_a_whole_answer_harms_nobody(
    fleet: Fleet, breaks: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with canary_without_a_last_chunk(breaks) as canary:
        await fleet.follow(share=WHOLE, canary=canary)
        assert (await say(fleet.stable[0], question(stream=True)))[0] == CANARY

        async def counted() -> bool:
            return (await fleet.counts(CANARY)).requests == 1

        await until(counted)
    counts = await fleet.counts(CANARY)
    assert (counts.errors, counts.answers) == (0, 1)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
