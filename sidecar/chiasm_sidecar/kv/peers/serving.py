"""Tells other replicas where records lie, and sends them: the peer's end of the connection.

Whoever has not the secret learns nothing, and a connection that says nothing holds nothing but a
socket, of which there are few. A namespace is asked for by its name and a record by its key, which
is a digest of everything that it was computed for: whoever knows neither finds nothing.

Records are sent in pieces, one of all answers in a turn of the event loop (0.1 ms), and each when
the one before has gone: whoever takes none holds a piece, and that not for long.

Must not know: who the other replicas are.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from chiasm_sidecar.kv.peers import wire
from chiasm_sidecar.kv.tiers.arena import ArenaTier
from chiasm_sidecar.kv.tiers.base import TierFailed

log = logging.getLogger("chiasm.sidecar.kv")

Refused = Callable[[str], None]

_MAX_CONNECTIONS = 256
_MIN_PATIENCE_SECONDS = 5.0


class Door(Protocol):
    """What opens for those who have proved that they know the secret."""

    def admit(self, address: str) -> None:
        """Raises: TierFailed."""

    def dismiss(self, address: str) -> None:
        """Take back one `admit`."""


class _TakesNothing(Exception):
    """The asker does not take what it asked for."""


class Serving:
    """Listens for other replicas."""

    def __init__(
        self,
        read_secret: Callable[[], bytes],
        description: wire.Description,
        memory: ArenaTier,
        refused: Refused,
        door: Door,
        timeout_seconds: float,
    ) -> None:
        """`timeout_seconds` is what askers are given: who waits for longer is not sent away."""
        self._patience_seconds = max(_MIN_PATIENCE_SECONDS, timeout_seconds)
        self._read_secret = read_secret
        self._description = wire.encode_description(description)
        self._memory = memory
        self._refused = refused
        self._door = door
        self._sending = asyncio.Lock()
        self._connections: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def listening(self, host: str | None, port: int) -> AsyncIterator[None]:
        """Answer while the block runs; host None: on every address.

        Raises: OSError when the port is taken.
        """
        server = await asyncio.start_server(
            self._connected, host, port, limit=wire.MAX_FRAME_BYTES, reuse_address=True
        )
        try:
            yield
        finally:
            server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        if len(self._connections) >= _MAX_CONNECTIONS:
            self._refused("busy")
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        # Cancelled before it began, it would leave the socket open.
        task.add_done_callback(lambda _: writer.close())

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._patience_seconds):
                channel = await self._greet(reader, writer)
                first = await self._asked(channel, reader)
            # Only now is it known that the asker has the secret.
            address = writer.get_extra_info("peername")[0]
            self._door.admit(address)
            try:
                await self._answer(channel, *first, writer)
                while True:
                    await self._answer(channel, *await self._asked(channel, reader), writer)
            finally:
                self._door.dismiss(address)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the asker has gone
        except (ValueError, TimeoutError, TierFailed) as error:
            self._refused("silent" if isinstance(error, TimeoutError) else "denied")
            words = {"detail": str(error) or "it said nothing"}
            log.warning("a replica that asks is refused", extra={"fields": words})
        except _TakesNothing:
            self._refused("slow")
            writer.transport.abort()  # what waits to be sent would keep it open
            log.warning("a replica does not take what it asked for")
        except Exception:
            log.exception("a replica that asks is left by a fault of ours")

    async def _greet(self, reader: StreamReader, writer: StreamWriter) -> wire.Channel:
        theirs = wire.decode_hello(await reader.readexactly(wire.HELLO_BYTES))
        secret, ours = self._read_secret(), secrets.token_bytes(wire.NONCE_BYTES)
        writer.write(wire.encode_proof(secret, theirs, ours))
        return wire.Channel(secret, theirs, ours, asker=False)

    async def _asked(self, channel: wire.Channel, reader: StreamReader) -> tuple[wire.Kind, bytes]:
        kind, body = channel.open(await read_frame(reader))
        return kind, bytes(body)

    async def _answer(
        self, channel: wire.Channel, kind: wire.Kind, body: bytes, writer: StreamWriter
    ) -> None:
        if kind is wire.Kind.DESCRIBE:
            writer.write(channel.seal(wire.Kind.REGION, self._description))
        elif kind is wire.Kind.LOOKUP:
            lookup = wire.decode_lookup(body)
            places = self._memory.find(lookup.namespace, lookup.record_bytes, lookup.keys)
            writer.write(channel.seal(wire.Kind.PLACES, wire.encode_places(places)))
        elif kind is wire.Kind.READ:
            region = self._memory.arena.region
            await self._send(channel, wire.decode_read(body, region.num_bytes), writer)
        else:
            raise ValueError(f"{kind.name} is not what a replica says that asks")
        await writer.drain()

    async def _send(self, channel: wire.Channel, read: wire.Read, writer: StreamWriter) -> None:
        for start in range(0, read.num_bytes, wire.PIECE_BYTES):
            end = min(start + wire.PIECE_BYTES, read.num_bytes)
            async with self._sending:
                piece = self._memory.arena.piece(read.places, read.slot_bytes, start, end)
                # In this turn of the event loop, in which nobody else writes there.
                writer.write(channel.seal(wire.Kind.PIECE, *piece))
                await asyncio.sleep(0)
            try:
                async with asyncio.timeout(self._patience_seconds):
                    await writer.drain()
            except TimeoutError as error:
                raise _TakesNothing from error


async def read_frame(reader: StreamReader) -> bytes:
    """The next frame, without its length.

    Raises: ValueError for bytes that are none, IncompleteReadError at the end.
    """
    return await reader.readexactly(wire.frame_length(await reader.readexactly(wire.LENGTH_BYTES)))
