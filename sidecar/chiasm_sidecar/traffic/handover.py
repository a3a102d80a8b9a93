"""The one module that asks sidecars of another revision: HTTP to their Service, pooled.

What is handed over is the client's body as it came and the few headers that a sidecar reads. The
revision that must answer is named, so that whoever gets it serves it or refuses it (421), and never
hands it on: there are no loops. Leaving `ask` early closes the connection, which is how the other
side learns that nobody waits any more.
"""

from __future__ import annotations

import asyncio
import io
import random
import socket
import sys
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from itertools import islice

import aiohttp
from chiasm_contract.clients import DEFAULTS, ClientSettings
from chiasm_contract.errors import Unavailable
from chiasm_contract.names import REVISION_HEADER

from chiasm_sidecar.traffic.routing import Place

PATH = "/v1/chat/completions"

# Below the 75 s after which the other sidecar closes an idle connection, so that a request hardly
# ever meets one that is just being closed.
_KEEPALIVE_SECONDS = 30.0
# A node that vanishes ends no connection. What is not acknowledged for so long, and what answers
# no probe, is given up; an answer that merely takes its time acknowledges probes.
_UNACKNOWLEDGED_MILLISECONDS = 10_000
_PROBE_AFTER_SECONDS, _PROBE_EVERY_SECONDS, _NUM_PROBES = 5, 2, 3
_RETRY_AFTER_SECONDS = 2
# A Service chooses a pod for each connection: pods that are new get requests only by new ones.
_REQUESTS_OF_A_CONNECTION = 16
_PASSED_HEADERS = (
    "authorization", "content-type", "accept", "user-agent", "traceparent", "tracestate", "baggage",
)  # fmt: skip
_FAULTY = (400, 413)
# What the client is told as it is: an answer, or of stable that the request is at fault. What only
# a canary finds faulty is asked of stable, too.
OF_CANARY = (200,)
OF_STABLE = (*OF_CANARY, *_FAULTY)
# These as well, where nobody else could do better.
OF_LAST = (*OF_STABLE, 401, 404, 429, 503)


class NotAnswered(Unavailable):
    """The other revision gave no answer, and the client has not seen a byte of one."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_seconds=_RETRY_AFTER_SECONDS)


class FoundFaulty(NotAnswered):
    """The other revision says that the request is at fault; the next one may see it otherwise."""


class Full(NotAnswered):
    """The other revision has as much to do as it takes."""


_KINDS: dict[int, type[NotAnswered]] = {**dict.fromkeys(_FAULTY, FoundFaulty), 429: Full}


class Handover:
    """A connection pool to the other revisions. Use as an async context manager."""

    def __init__(self, clients: ClientSettings = DEFAULTS) -> None:
        self._clients = clients
        self._session: aiohttp.ClientSession | None = None
        self._num_sent = 0

    async def __aenter__(self) -> Handover:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=_KEEPALIVE_SECONDS, socket_factory=_socket
            ),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=self._clients.peer_connect_timeout_seconds
            ),
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def pool(self) -> aiohttp.ClientSession:
        """For what else goes to other sidecars."""
        if self._session is None:
            raise RuntimeError("Handover is used outside its `async with`; this is a bug")
        return self._session

    @asynccontextmanager
    async def ask(
        self, place: Place, body: bytes, headers: Mapping[str, str], taken: Collection[int]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Hand one request over; yields the answer, whose body has not been read.

        Raises: NotAnswered when there is none, or one whose status is not `taken`, for another
        revision could do better: FoundFaulty when that says that the request is at fault, Full when
        it is overloaded. While reading: NotAnswered when the connection breaks.
        """
        response = await self._post(place, body, headers, alone=taken == OF_LAST)
        del body
        try:
            if response.status not in taken:
                raise _KINDS.get(response.status, NotAnswered)(
                    f"The revision that was to answer did not (status {response.status}); "
                    "retry in a moment."
                )
            yield response
        except aiohttp.ClientError as error:
            raise _broken() from error
        finally:
            response.close()

    async def _post(
        self, place: Place, body: bytes, headers: Mapping[str, str], *, alone: bool
    ) -> aiohttp.ClientResponse:
        """Send one request; again when it is lost before a byte of the answer.

        Where another revision could answer (this one is not `alone`) that is quicker than to ask a
        dead one again: then only a pooled connection that had died under us is worth another try.
        """
        sent = {name: headers[name] for name in _PASSED_HEADERS if name in headers}
        sent |= {"x-request-id": headers["x-request-id"], REVISION_HEADER: place.revision}
        self._num_sent += 1
        if self._num_sent % _REQUESTS_OF_A_CONNECTION == 0:
            sent["connection"] = "close"
        pauses = self._clients.pauses(self._clients.peer_retries, random.random)
        if not alone:
            pauses = islice(pauses, 1)
        while True:
            try:
                return await self.pool.post(
                    f"http://{place.address}{PATH}",
                    data=io.BytesIO(body),
                    headers=sent,
                    allow_redirects=False,
                )
            except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError) as error:
                pause = next(pauses, None) if alone else None
                if pause is None:
                    raise _broken() from error
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                pause = next(pauses, None)
                if pause is None:
                    raise _broken() from error
            except aiohttp.ClientError as error:
                raise _broken() from error
            await asyncio.sleep(pause)


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """One that notices when nobody is at its other end any more."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        for option, value in (
            (socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MILLISECONDS),
            (socket.TCP_KEEPIDLE, _PROBE_AFTER_SECONDS),
            (socket.TCP_KEEPINTVL, _PROBE_EVERY_SECONDS),
            (socket.TCP_KEEPCNT, _NUM_PROBES),
        ):
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def _broken() -> NotAnswered:
    return NotAnswered("The revision that was to answer cannot be reached; retry in a moment.")
