"""The block service's socket: one worker at a time, any number of calls at once.

The newest admitted HELLO wins: a worker that started again is served even when the end of the one
before has not been noticed yet. A frame that is none, a slot that is not the worker's, a fault of
ours: the connection ends with a line in the log, and with it all that it held. The process goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator

from chiasm_contract import block_wire as wire
from chiasm_contract.block_record import record_bytes
from chiasm_contract.tiers import BlockTiers
from pydantic import ValidationError

from chiasm_sidecar.kv.meters import Meters
from chiasm_sidecar.kv.namespaces import Release
from chiasm_sidecar.kv.session import Admitted, Refusal, Session, SessionEnded, Tell, refusal
from chiasm_sidecar.kv.staging import Staging, remove_leftovers
from chiasm_sidecar.kv.store import BlockStore

log = logging.getLogger("chiasm.sidecar.kv")

_MAX_CALLS = 64
_BUFFER_BYTES = 2**18
_SOCKET_MODE = 0o600


class BlockService:
    """Listens on the socket and serves what `admitted` says is this pod's worker."""

    def __init__(
        self,
        settings: BlockTiers,
        store: BlockStore,
        admitted: Admitted,
        meters: Meters,
        tell: Tell | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._admitted = admitted
        self._meters = meters
        self._tell = tell
        self._connections: set[asyncio.Task[None]] = set()
        self._served: StreamWriter | None = None
        self._latest: tuple[str, int] = ("", 0)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Serve while the block runs.

        Raises: OSError when the socket cannot be made.
        """
        path = self._settings.socket_path
        remove_leftovers(self._settings.staging_path)
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._connected, path, limit=_BUFFER_BYTES)
        os.chmod(path, _SOCKET_MODE)
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        # Cancelled before it began, it would leave the socket open.
        task.add_done_callback(lambda _: writer.close())

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            await self._converse(reader, writer)
        except* (ConnectionError, asyncio.IncompleteReadError):
            pass  # the worker has gone
        except* (ValueError, SessionEnded) as group:
            words = "; ".join(map(str, group.exceptions))
            log.warning("a connection is ended", extra={"fields": {"detail": words}})
        except* Exception:
            log.exception("a connection is ended by a fault of the block service")
        finally:
            writer.close()

    async def _converse(self, reader: StreamReader, writer: StreamWriter) -> None:
        kind, call, body = await _read(reader)
        if kind is not wire.Kind.HELLO:
            raise ValueError(f"a connection begins with HELLO, not with {kind.name}")
        session = await self._greet(body)
        if isinstance(session, Refusal):
            self._meters.refused(session.reason)
            # A worker says HELLO before its pod can be ready, so that one is no news.
            level = logging.INFO if session.reason == "not_admitted" else logging.WARNING
            log.log(level, "a worker is refused", extra={"fields": {"detail": session.message}})
            writer.write(wire.frame(wire.Kind.REFUSED, call, session.message.encode()))
            await writer.drain()
            return
        if self._served is not None:
            self._served.transport.abort()
        self._served = writer
        try:
            with session.staging:
                writer.write(wire.frame(wire.Kind.WELCOME, call, _welcome(session.staging)))
                await self._answer_all(session, reader, writer)
        finally:
            if self._served is writer:
                self._served = None

    async def _greet(self, body: memoryview) -> Session | Refusal:
        """The session of a worker that may use the service, or why it may not."""
        try:
            hello = wire.Hello.model_validate_json(bytes(body))
        except ValidationError as error:
            words = f"HELLO is of another version than this sidecar: {error.errors()[0]['loc']}."
            return Refusal("version", words)
        incarnation, engine_gen = self._latest
        latest_gen = engine_gen if hello.incarnation == incarnation else 0
        admitted = refusal(hello, self._admitted(), latest_gen)
        if isinstance(admitted, Refusal):
            return admitted
        settings = self._settings
        slot_bytes = record_bytes(hello.payload_bytes)
        try:
            staging = await asyncio.to_thread(  # claiming gigabytes takes a while
                Staging, settings.staging_path, settings.staging_bytes, slot_bytes
            )
        except (OSError, ValueError) as error:
            return Refusal("staging", f"The staging file cannot be made: {error}")
        release = Release(hello.compute_fp, hello.repr_fp, hello.payload_bytes, hello.fields)
        self._store.admit(release)
        return Session(
            identity=admitted,
            admitted=self._admitted,
            staging=staging,
            store=self._store,
            meters=self._meters,
            release=release,
            engine_gen=hello.engine_gen,
            timeout_seconds=settings.fetch_timeout_seconds,
            tell=self._tell,
        )

    async def _answer_all(
        self, session: Session, reader: StreamReader, writer: StreamWriter
    ) -> None:
        free = asyncio.Semaphore(_MAX_CALLS)
        async with asyncio.TaskGroup() as calls:
            while True:
                kind, call, body = await _read(reader)
                if kind is wire.Kind.RELEASE:
                    session.give_back(body)
                elif kind in (wire.Kind.FETCH, wire.Kind.STORE):
                    await free.acquire()
                    task = calls.create_task(self._answer(session, kind, call, body, writer))
                    task.add_done_callback(lambda _: free.release())
                else:
                    raise ValueError(f"{kind.name} is not what a worker says here")

    async def _answer(
        self,
        session: Session,
        kind: wire.Kind,
        call: int,
        body: memoryview,
        writer: StreamWriter,
    ) -> None:
        def send(answer: wire.Kind, data: bytes) -> None:
            writer.write(wire.frame(answer, call, data))

        await (session.fetch if kind is wire.Kind.FETCH else session.keep)(body, send)
        self._latest = (session.identity.incarnation, session.engine_gen)
        await writer.drain()


def _welcome(staging: Staging) -> bytes:
    welcome = wire.Welcome(
        staging_path=str(staging.path),
        slot_bytes=staging.slot_bytes,
        num_read_slots=staging.slots.num_read,
        num_write_slots=staging.slots.num_write,
    )
    return welcome.model_dump_json().encode()


async def _read(reader: StreamReader) -> tuple[wire.Kind, int, memoryview]:
    """The next frame.

    Raises: ValueError for bytes that are none, IncompleteReadError at the end.
    """
    length = wire.frame_length(await reader.readexactly(4))
    return wire.split_frame(await reader.readexactly(length))
