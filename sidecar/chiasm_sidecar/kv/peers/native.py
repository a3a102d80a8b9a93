"""The transport's calls in a thread of their own, one after the other, and memory to read into.

A call that hangs holds up the calls behind it, and nothing else.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

from chiasm_sidecar.kv.peers.fence import Fence
from chiasm_sidecar.kv.peers.transport import Transport
from chiasm_sidecar.kv.tiers.arena import Region

P = ParamSpec("P")
T = TypeVar("T")


class Native:
    """A transport that is awaited."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "kv-peers")
        self.transport: Transport | None = None

    async def start(self, port: int, interface: str | None) -> Transport:
        """Make the transport.

        Raises: TierFailed.
        """
        loop = asyncio.get_running_loop()
        self.transport = await loop.run_in_executor(self._thread, Transport, port, interface)
        return self.transport

    async def do(
        self, call: Callable[Concatenate[Transport, P], T], *args: P.args, **names: P.kwargs
    ) -> T:
        """A method of the transport.

        Raises: TierFailed as the method does.
        """
        if self.transport is None:
            raise RuntimeError("The transport is used before it is started; a bug.")
        work = functools.partial(call, self.transport, *args, **names)
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    @property
    def fence(self) -> Fence:
        """Who may reach the transport."""
        if self.transport is None:
            raise RuntimeError("The transport is used before it is started; a bug.")
        return self.transport.fence

    def close(self) -> None:
        """Take no more calls; one that hangs ends with the process."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class Berth:
    """A part of the landing place, for one read at a time."""

    def __init__(self, region: Region, start: int, num_bytes: int) -> None:
        self.address = region.address + start
        self.view = region.view[start : start + num_bytes]


class Landing:
    """A region in equal berths, each lent to one read until that has ended."""

    def __init__(self, num_bytes: int, num_berths: int) -> None:
        self.berth_bytes = num_bytes // num_berths
        self.region = Region(num_bytes)
        self._free: asyncio.LifoQueue[Berth] = asyncio.LifoQueue()
        for number in range(num_berths):
            berth = Berth(self.region, number * self.berth_bytes, self.berth_bytes)
            self._free.put_nowait(berth)

    async def take(self) -> Berth:
        """A free berth, as soon as there is one."""
        return await self._free.get()

    def give_back(self, berth: Berth) -> None:
        """Nothing is being read into it any more."""
        self._free.put_nowait(berth)
