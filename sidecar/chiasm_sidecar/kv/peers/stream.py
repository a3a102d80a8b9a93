"""The transport that asks for the bytes on the connection by which it was told where they are.

An answer comes in frames, each with its tag, so that what is read was sent by one who has the
secret, whole and in its order. Slots come as they lie in memory, their generation at both ends; one
that was used again while it was sent has no generation at its end.

What arrives is bounded by the landing place, and what was not asked for ends the connection.

Must not know: which replicas there are, what a verdict on a record means.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from chiasm_sidecar.kv.peers import wire
from chiasm_sidecar.kv.peers.landing import Berth, Landing
from chiasm_sidecar.kv.peers.line import Line
from chiasm_sidecar.kv.tiers.arena import Place, Region


class StreamTransport:
    """Needs no port and no memory that others reach: serving.py sends what is asked for."""

    fenced = True

    def __init__(self, landing: Landing) -> None:
        self.name = secrets.token_hex(16)
        self._landing = landing

    async def open(self, memory: Region) -> wire.Description:
        """Nobody is told an address."""
        return wire.Description(self.name, 0, memory.num_bytes, b"")

    def admit(self, address: str) -> None:
        """There is nothing to let anybody into."""

    def dismiss(self, address: str) -> None:
        """There is nothing to keep anybody out of."""

    def reads(self, line: Line) -> StreamReads:
        """From the replica at the other end of a line."""
        return StreamReads(line, self._landing)

    async def close(self, idle: bool) -> None:
        """Nothing is held."""


class StreamReads:
    """From one replica; also from one whose own transport is another, for all of them send."""

    late = False
    """What was given up ended with its connection."""

    def __init__(self, line: Line, landing: Landing) -> None:
        self._line = line
        self._landing = landing

    async def meet(self, description: wire.Description) -> None:
        """Whoever answers is asked on the connection on which he answers."""

    async def read(self, places: Sequence[Place], slot_bytes: int) -> list[bytes | None]:
        """The records in slots; who waits for them gives the landing place back in any case.

        Raises: TierFailed, OSError, EOFError, ValueError.
        """
        berth = await self._landing.take()
        try:
            async with self._line.speaking():
                await self._receive(berth, places, slot_bytes)
            return berth.records(places, slot_bytes)
        finally:
            self._landing.give_back(berth)

    async def _receive(self, berth: Berth, places: Sequence[Place], slot_bytes: int) -> None:
        await self._line.say(wire.Kind.READ, wire.encode_read(wire.Read(slot_bytes, tuple(places))))
        at, end = 0, len(places) * slot_bytes
        while at < end:
            piece = await self._line.hear(wire.Kind.READ)
            if not 0 < len(piece) <= end - at:
                raise ValueError(f"a piece has {len(piece)} bytes, and {end - at} were to come")
            berth.view[at : at + len(piece)] = piece
            at += len(piece)

    async def leave(self) -> bool:
        """Nothing outlives the connection."""
        return True

    def abandon(self) -> bool:
        """Nothing outlives the connection."""
        return True
