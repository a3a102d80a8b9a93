"""The asker's end of a control connection: made when it is needed, for one call at a time.

A call that does not come to its end takes the connection with it, for its answer would be taken for
the next one's.

Must not know: what is asked, how records are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable

from chiasm_sidecar.kv.peers import wire
from chiasm_sidecar.kv.peers.serving import Door, read_frame

Met = Callable[[wire.Description], Awaitable[None]]


class Line:
    """To one address."""

    def __init__(
        self,
        address: str,
        port: int,
        read_secret: Callable[[], bytes],
        door: Door,
        met: Met,
        timeout_seconds: float,
    ) -> None:
        """`met` is told who answers, on each new connection before anything else is asked."""
        self.address = address
        self._port = port
        self._read_secret = read_secret
        self._door = door
        self._met = met
        self.timeout_seconds = timeout_seconds
        self._turn = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._admitted = False

    @property
    def connected(self) -> bool:
        """Whether it can be asked without saying who we are first."""
        return self._writer is not None

    @contextlib.asynccontextmanager
    async def speaking(self) -> AsyncIterator[None]:
        """The block's turn to say something, connected; only who has it may.

        Its time begins with its turn: that others ask as well is no fault of who answers.

        Raises: OSError, EOFError, ValueError, TierFailed; TimeoutError with its time over.
        """
        async with self._turn, asyncio.timeout(self.timeout_seconds):
            try:
                if self._writer is None:
                    await self._connect()
                yield
            except BaseException:
                self.close()
                raise

    async def _connect(self) -> None:
        reader, writer = await asyncio.open_connection(
            self.address, self._port, limit=wire.MAX_FRAME_BYTES
        )
        try:
            secret, ours = self._read_secret(), secrets.token_bytes(wire.NONCE_BYTES)
            writer.write(wire.encode_hello(ours))
            theirs = wire.check_proof(secret, ours, await reader.readexactly(wire.PROOF_BYTES))
            self._door.admit(self.address)
        except BaseException:
            writer.close()
            raise
        self._admitted = True
        self._channel = wire.Channel(secret, ours, theirs, asker=True)
        self._reader, self._writer = reader, writer
        body = await self.call(wire.Kind.DESCRIBE, b"")
        await self._met(wire.decode_description(body))

    async def call(self, kind: wire.Kind, body: bytes) -> bytes:
        """What is answered, in one frame."""
        await self.say(kind, body)
        return bytes(await self.hear(kind))

    async def say(self, kind: wire.Kind, body: bytes) -> None:
        """Ask something."""
        writer = self._writer
        if writer is None:
            raise ConnectionResetError("the connection is gone")
        writer.write(self._channel.seal(kind, body))
        await writer.drain()

    async def hear(self, asked: wire.Kind) -> memoryview:
        """The next frame of the answer."""
        answer, data = self._channel.open(await read_frame(self._reader))
        if answer != asked + 1:
            raise ValueError(f"{answer.name} is no answer to {asked.name}")
        return data

    def close(self) -> None:
        """End the connection; the next to speak makes a new one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._admitted:
            self._admitted = False
            self._door.dismiss(self.address)
