"""Passes the answer of another sidecar on to the client.

A stream begins for the client with its first whole event, and what is no stream is passed on whole:
until then another revision can still answer. Must not know: who else could.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus

import aiohttp
from chiasm_contract.errors import Unavailable

from chiasm_sidecar.front_door.client_waits import Waiting
from chiasm_sidecar.front_door.exchange import Exchange
from chiasm_sidecar.traffic.handover import NotAnswered
from chiasm_sidecar.traffic.observer import MEASURES_HEADER, StreamReader

_PASSED_HEADERS = ("retry-after", "www-authenticate")
_MEASURES = MEASURES_HEADER.decode()
# A connection that takes longer to end is not worth keeping.
_END_SECONDS = 1.0


async def relay(
    exchange: Exchange,
    response: aiohttp.ClientResponse,
    waiting: Waiting,
    reader: StreamReader,
    let_go: Callable[[], None],
) -> None:
    """Send the whole answer.

    Args:
        exchange: with the client.
        response: from the other sidecar, its body unread.
        waiting: ended once the answer is whole.
        reader: reads along in the answer, be it a stream or not.
        let_go: called once the request will be sent nowhere else.

    Raises: NotAnswered or aiohttp.ClientError while the client has seen nothing, Unavailable when
    the answer was cut later.
    """
    if response.status == HTTPStatus.OK and response.content_type == "text/event-stream":
        await _stream(exchange, response, waiting, reader, let_go)
        return
    observed = reader.observed
    data = await response.read()
    if response.status == HTTPStatus.OK:
        observed.read_complete(data)
        observed.read_measures(response.headers.get(_MEASURES, ""))
        if not observed.whole:
            raise NotAnswered("The revision that was to answer sent something else; ask again.")
    let_go()
    waiting.end()
    headers = [
        (name.encode(), response.headers[name].encode())
        for name in _PASSED_HEADERS
        if name in response.headers
    ]
    await exchange.send_json(response.status, data, *headers)


async def _stream(
    exchange: Exchange,
    response: aiohttp.ClientResponse,
    waiting: Waiting,
    reader: StreamReader,
    let_go: Callable[[], None],
) -> None:
    observed = reader.observed
    try:
        async for data in response.content.iter_any():
            passed = reader.feed(data)
            if not passed:
                continue
            if not exchange.response_started:
                let_go()
                await exchange.start_stream()
            is_over = observed.whole or observed.fault_status is not None
            if is_over:
                waiting.end()
            await exchange.send_events(passed, more=not is_over)
            if is_over:
                break
    except aiohttp.ClientError:
        if not exchange.response_started:
            raise
    if observed.fault_status is not None:
        exchange.status = observed.fault_status
    elif not observed.whole:
        raise _cut() if exchange.response_started else NotAnswered(_cut().message)
    else:
        await _read_the_end(response)


async def _read_the_end(response: aiohttp.ClientResponse) -> None:
    """Read the mark behind the last piece: with it the connection goes back into the pool. The
    client has its whole answer, so that whatever happens here is no fault of it."""
    with suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            async for _ in response.content.iter_any():
                pass


def _cut() -> Unavailable:
    return Unavailable("The revision that answered ended before the answer did; ask again.")
