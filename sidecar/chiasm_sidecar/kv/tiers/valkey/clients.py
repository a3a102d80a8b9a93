"""Connections to one server, which change over to other credentials without losing a command.

A command begins on the client of the credentials that lie in the files at that moment. When those
change, the next command begins on a new client; commands on the old one end there, and its
connections are closed when the last has ended. So nobody who ends old credentials after `released`
takes them from a command.

Must not know: what a command does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable
from typing import Any

from chiasm_contract.ending import end
from chiasm_contract.tiers import ValkeyTier as ValkeySettings
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from chiasm_sidecar.kv.tiers.valkey import logins
from chiasm_sidecar.kv.tiers.valkey.logins import Login
from chiasm_sidecar.kv.tiers.valkey.scripts import PUT, REMOVE


class Client:
    """One generation of credentials: its connections, its scripts, and what runs on it."""

    def __init__(self, settings: ValkeySettings, login: Login) -> None:
        self.redis = Redis(**_options(settings, login))
        self.put = self.redis.register_script(PUT)
        self.remove = self.redis.register_script(REMOVE)
        self._num_running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextlib.contextmanager
    def _counted(self) -> Any:
        self._num_running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._num_running -= 1
            if self._num_running == 0:
                self._idle.set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Client]:
        """Count a command that runs."""
        with self._counted():
            yield self

    async def end(self) -> None:
        """Close every connection once nothing runs."""
        await self._idle.wait()
        await self.redis.aclose()


class Clients:
    """The client of now, and those that still end."""

    def __init__(self, settings: ValkeySettings) -> None:
        self._settings = settings
        self._stamp: Hashable = None
        self._client: Client | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def renew(self) -> Client:
        """The client of the credentials that lie there now.

        Raises: TierFailed when they cannot be read; the next call tries again.
        """
        seen = logins.stamp(self._settings)
        if self._client is None or seen != self._stamp:
            client = Client(self._settings, logins.read(self._settings))
            self._retire()
            self._client, self._stamp = client, seen
        return self._client

    def use(self) -> contextlib.AbstractAsyncContextManager[Client]:
        """The client of now, for one command.

        Raises: TierFailed when credentials cannot be read.
        """
        return self.renew().running()

    def _retire(self) -> None:
        if self._client is not None:
            task = asyncio.create_task(self._client.end())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def released(self) -> None:
        """Return once no connection with earlier credentials is left."""
        while self._ending:
            await asyncio.wait(set(self._ending))

    async def close(self) -> None:
        """Close all connections; what runs on them fails."""
        await end(self._ending)
        if self._client is not None:
            await self._client.redis.aclose()


def _options(settings: ValkeySettings, login: Login) -> dict[str, Any]:
    options: dict[str, Any] = {
        "host": settings.host,
        "port": settings.port,
        "protocol": 2,  # 3 would subscribe to the server's maintenance, which we do not follow
        "socket_timeout": settings.timeout_seconds,
        "socket_connect_timeout": settings.timeout_seconds,
        "retry": Retry(NoBackoff(), 0),  # the breaker decides when to ask again
    }
    if login.password is not None:
        options |= {"username": login.username, "password": login.password}
    if settings.tls:
        options["ssl"] = True
        for name, path in (
            ("ssl_ca_certs", login.ca_path),
            ("ssl_certfile", login.certificate_path),
            ("ssl_keyfile", login.certificate_key_path),
        ):
            options[name] = None if path is None else str(path)
    return options
