"""The transport that reads one-sidedly: nobody at the other end runs for it, or hears of it.

A read that does not end in time goes on without anyone: its landing place comes back when it ends,
and until then nothing more is read from there.

Must not know: which replicas there are, what a verdict on a record means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from chiasm_sidecar.kv.peers import wire
from chiasm_sidecar.kv.peers.landing import Berth, Landing
from chiasm_sidecar.kv.peers.line import Line
from chiasm_sidecar.kv.peers.nixl.agent import Agent, State
from chiasm_sidecar.kv.peers.nixl.native import Native
from chiasm_sidecar.kv.tiers.arena import Place, Region
from chiasm_sidecar.kv.tiers.base import TierFailed

# More reads at once than these from one replica would take every landing place if it fell silent.
_MAX_READS = 2
_POLL_SECONDS = 0.0005
_LATE_POLL_SECONDS = 0.1


class NixlTransport:
    """An agent with a port of its own, and a fence around that where the kernel allows it."""

    name = ""

    def __init__(self, landing: Landing, port: int, interface: str | None) -> None:
        self.native = Native()
        self._landing = landing
        self._port = port
        self._interface = interface
        self._description: wire.Description | None = None

    async def open(self, memory: Region) -> wire.Description:
        """Claim the port.

        Raises: TierFailed when NIXL is not installed or cannot start.
        """
        if self._description is None:
            if not self.native.started:
                await self.native.start(self._port, self._interface)
            self.name = self.native.agent.name
            await self.native.do(Agent.register, memory)
            metadata = await self.native.do(Agent.metadata)
            await self.native.do(Agent.register, self._landing.region)
            self._description = wire.Description(
                self.name, memory.address, memory.num_bytes, metadata
            )
        return self._description

    @property
    def fenced(self) -> bool:
        """Whether the kernel keeps strangers from the port."""
        return self.native.agent.fence.stands

    def admit(self, address: str) -> None:
        """Who is asked or asks may come by a connection of his own.

        Raises: TierFailed.
        """
        self.native.agent.fence.admit(address)

    def dismiss(self, address: str) -> None:
        """Take back one `admit`."""
        self.native.agent.fence.dismiss(address)

    def reads(self, line: Line) -> NixlReads:
        """From the replica at the other end of a line."""
        return NixlReads(line, self.native, self._landing)

    async def close(self, idle: bool) -> None:
        """End the agent; with reads under way into its memory it stays until the process ends."""
        if idle and self.native.started:
            await self.native.do(Agent.close)
        self.native.close()


class NixlReads:
    """From one replica."""

    def __init__(self, line: Line, native: Native, landing: Landing) -> None:
        self._line = line
        self._native = native
        self._landing = landing
        self._under_way: set[asyncio.Task[None]] = set()
        self._num_late = 0
        self._agent = ""
        self._address = 0

    @property
    def late(self) -> bool:
        """Whether a read that was given up has not ended."""
        return bool(self._num_late)

    async def meet(self, description: wire.Description) -> None:
        """Make our agent know the one behind this address, and no longer one of before.

        Raises: TierFailed, ValueError.
        """
        if not description.metadata:
            raise ValueError("the other replica has another transport (spec.tiers.peers.transport)")
        if self._agent:
            if self._under_way:
                raise TierFailed("peers: it is read from an agent that went away")
            await self._native.do(Agent.forget, self._agent)
        self._agent, self._address = description.name, description.address
        if await self._native.do(Agent.add, description.metadata) != description.name:
            raise ValueError("the peer's metadata is of another agent")

    async def read(self, places: Sequence[Place], slot_bytes: int) -> list[bytes | None]:
        """The records in slots.

        Raises: TierFailed; TimeoutError when the read itself takes too long.
        """
        try:
            return await self._read(places, slot_bytes)
        except (TierFailed, TimeoutError, asyncio.CancelledError):
            self._line.close()  # whoever answers there next may be another agent
            raise

    async def _read(self, places: Sequence[Place], stride: int) -> list[bytes | None]:
        """One read; who waits for it may go, it itself goes on until it has ended."""
        if self._num_late or len(self._under_way) >= _MAX_READS:
            raise TierFailed("peers: too many reads from one replica are under way")
        berth = await self._landing.take()
        ended = asyncio.get_running_loop().create_task(self._run(berth, places, stride))
        self._under_way.add(ended)
        ended.add_done_callback(self._under_way.discard)
        try:
            async with asyncio.timeout(self._line.timeout_seconds):
                await asyncio.shield(ended)
        except (TimeoutError, asyncio.CancelledError):
            self._num_late += 1
            ended.add_done_callback(lambda task: self._came_late(task, berth))
            raise
        except TierFailed:
            self._landing.give_back(berth)
            raise
        try:
            return berth.records(places, stride)
        finally:
            self._landing.give_back(berth)

    async def _run(self, berth: Berth, places: Sequence[Place], stride: int) -> None:
        """Raises: TierFailed when the read has ended without coming to its end."""
        addresses = [self._address + place.offset for place in places]
        handle = await self._native.do(Agent.read, self._agent, berth.address, addresses, stride)
        pause = _POLL_SECONDS
        while (state := await self._native.do(Agent.state, handle)) is State.RUNNING:
            await asyncio.sleep(pause)
            pause = min(pause * 1.05, _LATE_POLL_SECONDS)
        await self._native.do(Agent.release, handle)
        if state is State.FAILED:
            raise TierFailed("peers: a read failed")

    def _came_late(self, task: asyncio.Task[None], berth: Berth) -> None:
        if not task.cancelled():  # as it is only when everything ends
            task.exception()
            self._num_late -= 1
            self._landing.give_back(berth)

    async def leave(self) -> bool:
        """The address is of nobody any more; whether no read is left under way."""
        if self._under_way:
            return False
        if self._agent:
            await self._native.do(Agent.forget, self._agent)
        return True

    def abandon(self) -> bool:
        """Everything ends; whether no read was under way."""
        idle = not self._under_way
        for read in self._under_way:
            read.cancel()
        return idle
