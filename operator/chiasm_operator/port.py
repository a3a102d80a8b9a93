"""A port of the operator's: HTTP, with a bound on who holds connections and for how long.

Anybody in the cluster may connect. Who says nothing (no handshake, no request, none after the last)
is cut off after a while, and of too many at once those go first that have asked nothing yet, oldest
first: so the kubelet and the API server, which ask at once, get through.

Must not know: what is asked.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Sequence
from functools import partial

from aiohttp import web
from aiohttp.typedefs import Handler

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 256
# Until a whole request has come, the first or the next one.
QUIET_SECONDS = 30.0
HANDSHAKE_SECONDS = 5.0
# When the process has no file descriptor left.
_RETRY_SECONDS = 1.0
_END_SECONDS = 5.0


class Port:
    """Listens from `open` to `close`."""

    def __init__(
        self,
        host: str,
        port: int,
        routes: Sequence[web.RouteDef],
        *,
        tls: ssl.SSLContext | None = None,
        max_body_bytes: int = 1024,
    ) -> None:
        self._address = (host, port)
        self._routes = routes
        self._tls = tls
        self._max_body_bytes = max_body_bytes
        self._runner: web.AppRunner | None = None
        self._listening: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._greeting: dict[asyncio.Task[None], None] = {}  # oldest first
        self._asked: set[object] = set()  # connections on which a request has come

    @property
    def number(self) -> int | None:
        """The port it listens on; None while it does not."""
        if self._listening is None:
            return None
        number: int = self._listening.getsockname()[1]
        return number

    @property
    def num_connections(self) -> int:
        """Those that are open, with those whose handshake has not ended."""
        return len(self._greeting) + len(self._connections)

    async def open(self) -> None:
        """Listen.

        Raises: OSError when the port cannot be listened on.
        """
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        listening = socket.create_server(self._address, family=family, backlog=128)
        listening.setblocking(False)
        application = web.Application(
            client_max_size=self._max_body_bytes, middlewares=[self._note]
        )
        application.add_routes(self._routes)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            keepalive_timeout=QUIET_SECONDS,
            shutdown_timeout=_END_SECONDS,
        )
        await self._runner.setup()
        if self._runner.server is None:
            raise RuntimeError("aiohttp set up a runner without a server; this is a bug")
        self._listening = listening
        accepting = self._accept(listening, self._runner.server)
        self._accepting = asyncio.create_task(accepting, name="accept")

    async def close(self) -> None:
        """Stop listening; requests under way are answered."""
        tasks = [task for task in (self._accepting, *self._greeting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def _connections(self) -> list[web.RequestHandler]:
        """Oldest first."""
        server = None if self._runner is None else self._runner.server
        if server is None:
            return []
        return [each for each in server.connections if each.transport is not None]

    async def _accept(self, listening: socket.socket, server: web.Server) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                logger.warning("no connection can be taken: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if self.num_connections >= MAX_CONNECTIONS:
                self._make_room()
            task = asyncio.create_task(self._greet(server, connection))
            self._greeting[task] = None
            task.add_done_callback(partial(self._greeted, connection))
            await asyncio.sleep(0)  # a crowd that waits would be taken in one go

    async def _greet(self, server: web.Server, connection: socket.socket) -> None:
        """Hand one connection to aiohttp, behind its handshake."""
        loop = asyncio.get_running_loop()
        seconds = HANDSHAKE_SECONDS if self._tls is not None else None
        try:
            await loop.connect_accepted_socket(
                server, connection, ssl=self._tls, ssl_handshake_timeout=seconds
            )
        except OSError:  # TLS's own errors, and a handshake that took too long, among them
            connection.close()

    def _greeted(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._greeting.pop(task, None)
        if task.cancelled():  # perhaps before it began
            connection.close()

    def _make_room(self) -> None:
        """End one: in its handshake, or else silent, or else any; the oldest of its kind."""
        open_now = self._connections
        self._asked &= set(open_now)
        for task in self._greeting:
            del self._greeting[task]
            task.cancel()
            return
        silent = [each for each in open_now if each not in self._asked]
        (silent or open_now)[0].force_close()

    @web.middleware
    async def _note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._asked.add(request.protocol)
        return await handler(request)
