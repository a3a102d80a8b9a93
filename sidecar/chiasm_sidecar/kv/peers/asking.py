"""One other replica as its asker sees it: a control connection, its breaker, reads under way.

A call that is not answered in time ends the connection, for its answer would be taken for the next
one's. A read that does not end in time goes on without anyone: its landing place comes back when it
ends, and until then nothing more is read from there.

Must not know: which replicas there are, what a verdict on a record means.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence

from chiasm_sidecar.kv.peers import wire
from chiasm_sidecar.kv.peers.native import Berth, Landing, Native
from chiasm_sidecar.kv.peers.serving import read_frame
from chiasm_sidecar.kv.peers.transport import State, Transport
from chiasm_sidecar.kv.tiers.arena import Place, record_in, slot_bytes
from chiasm_sidecar.kv.tiers.base import TierFailed
from chiasm_sidecar.kv.tiers.breaker import Breaker

# More reads at once than these from one replica would take every landing place if it fell silent.
_MAX_READS = 2
_POLL_SECONDS = 0.0005
_LATE_POLL_SECONDS = 0.1
_FAULTS = (OSError, EOFError, ValueError, TierFailed)


class Peer:
    """One address."""

    def __init__(
        self,
        address: str,
        port: int,
        own_name: str,
        native: Native,
        landing: Landing,
        read_secret: Callable[[], bytes],
        timeout_seconds: float,
    ) -> None:
        self.address = address
        self.breaker = Breaker()
        self.is_self = False
        self._port = port
        self._own_name = own_name
        self._native = native
        self._landing = landing
        self._read_secret = read_secret
        self._timeout_seconds = timeout_seconds
        self._turn = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._reads: set[asyncio.Task[None]] = set()
        self._num_late = 0
        self._agent = ""
        self._admitted = False

    @property
    def connected(self) -> bool:
        """Whether it can be asked without saying who we are first."""
        return self._writer is not None

    def allows(self, now: float) -> bool:
        """Whether to ask it now."""
        return not self.is_self and not self._num_late and self.breaker.allows(now)

    async def look_up(self, lookup: wire.Lookup) -> list[Place | None]:
        """Where its records lie.

        Raises: TierFailed.
        """
        count = len(lookup.keys)
        try:
            async with asyncio.timeout(self._timeout_seconds), self._turn:
                if self._writer is None:
                    await self._connect()
                if self.is_self:
                    return [None] * count
                body = await self._call(wire.Kind.LOOKUP, wire.encode_lookup(lookup))
                last = self._description.num_bytes - slot_bytes(lookup.record_bytes)
                return wire.decode_places(body, count, last)
        except _FAULTS as error:
            self.close()
            raise _failed(error) from error
        except asyncio.CancelledError:
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
            # The transport may answer by a connection of its own.
            self._native.fence.admit(self.address)
            self._admitted = True
            self._channel = wire.Channel(secret, ours, theirs, asker=True)
            self._reader, self._writer = reader, writer
            body = await self._call(wire.Kind.DESCRIBE, b"")
            self._description = wire.decode_description(body)
            self.is_self = self._description.name == self._own_name
            if not self.is_self:
                await self._meet(self._description)
        except BaseException:
            self.close()
            writer.close()
            raise
        if self.is_self:
            self.close()

    async def _meet(self, description: wire.Description) -> None:
        """Make the transport know the agent behind this address, and no longer one of before."""
        if self._agent:
            if self._reads:
                raise TierFailed("peers: it is read from an agent that went away")
            await self._native.do(Transport.forget, self._agent)
        self._agent = description.name
        if await self._native.do(Transport.add, description.metadata) != description.name:
            raise ValueError("the peer's metadata is of another agent")

    async def _call(self, kind: wire.Kind, body: bytes) -> bytes:
        writer = self._writer
        if writer is None:
            raise ConnectionResetError("the connection is gone")
        writer.write(self._channel.seal(kind, body))
        await writer.drain()
        answer, data = self._channel.open(await read_frame(self._reader))
        if answer != kind + 1:
            raise ValueError(f"{answer.name} is no answer to {kind.name}")
        return data

    async def read(self, places: Sequence[Place], record_bytes: int) -> list[bytes | None]:
        """The records in some slots; None where a slot was emptied or used again since.

        Raises: TierFailed.
        """
        stride = slot_bytes(record_bytes)
        at_once = self._landing.berth_bytes // stride
        if not at_once:
            raise TierFailed(f"peers: no room to read a slot of {stride} bytes; see landing_bytes")
        records: list[bytes | None] = []
        for start in range(0, len(places), at_once):
            part = places[start : start + at_once]
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    records += await self._read(part, stride)
            except _FAULTS as error:
                self.close()
                raise _failed(error) from error
        return records

    async def _read(self, places: Sequence[Place], stride: int) -> list[bytes | None]:
        """One read; who waits for it may go, it itself goes on until it has ended."""
        if self._num_late or len(self._reads) >= _MAX_READS:
            raise TierFailed("peers: too many reads from one replica are under way")
        berth = await self._landing.take()
        ended = asyncio.get_running_loop().create_task(self._run(berth, places, stride))
        self._reads.add(ended)
        ended.add_done_callback(self._reads.discard)
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            self._num_late += 1
            ended.add_done_callback(lambda task: self._came_late(task, berth))
            raise
        except TierFailed:
            self._landing.give_back(berth)
            raise
        try:
            return [
                record_in(berth.view[i * stride : (i + 1) * stride], place.generation)
                for i, place in enumerate(places)
            ]
        finally:
            self._landing.give_back(berth)

    async def _run(self, berth: Berth, places: Sequence[Place], stride: int) -> None:
        """Raises: TierFailed when the read has ended without coming to its end."""
        addresses = [self._description.address + place.offset for place in places]
        begin = Transport.read
        handle = await self._native.do(begin, self._agent, berth.address, addresses, stride)
        pause = _POLL_SECONDS
        while (state := await self._native.do(Transport.state, handle)) is State.RUNNING:
            await asyncio.sleep(pause)
            pause = min(pause * 1.05, _LATE_POLL_SECONDS)
        await self._native.do(Transport.release, handle)
        if state is State.FAILED:
            raise TierFailed("peers: a read failed")

    def _came_late(self, task: asyncio.Task[None], berth: Berth) -> None:
        if not task.cancelled():  # as it is only when everything ends
            task.exception()
            self._num_late -= 1
            self._landing.give_back(berth)

    def close(self) -> None:
        """End the control connection; the next call makes a new one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._admitted:
            self._admitted = False
            self._native.fence.dismiss(self.address)

    async def leave(self) -> bool:
        """The address is of nobody any more; whether no read is left under way."""
        self.close()
        if self._reads:
            return False
        if self._agent:
            await self._native.do(Transport.forget, self._agent)
        return True

    def abandon(self) -> bool:
        """Everything ends; whether no read was under way."""
        self.close()
        idle = not self._reads
        for read in self._reads:
            read.cancel()
        return idle


def _failed(error: Exception) -> TierFailed:
    """The kind of fault only: messages may name hosts."""
    if isinstance(error, TierFailed):
        return error
    words = str(error) if isinstance(error, ValueError) else type(error).__name__
    return TierFailed(f"peers: {words}")
