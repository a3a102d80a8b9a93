"""The agent's calls in a thread of their own, one after the other.

A call that hangs holds up the calls behind it, and nothing else.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

from chiasm_sidecar.kv.peers.nixl.agent import Agent

P = ParamSpec("P")
T = TypeVar("T")


class Native:
    """An agent that is awaited."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "kv-peers")
        self._agent: Agent | None = None

    @property
    def agent(self) -> Agent:
        """What was started."""
        if self._agent is None:
            raise RuntimeError("The agent is used before it is started; a bug.")
        return self._agent

    @property
    def started(self) -> bool:
        """Whether there is an agent."""
        return self._agent is not None

    async def start(self, port: int, interface: str | None) -> Agent:
        """Make the agent.

        Raises: TierFailed.
        """
        loop = asyncio.get_running_loop()
        self._agent = await loop.run_in_executor(self._thread, Agent, port, interface)
        return self._agent

    async def do(
        self, call: Callable[Concatenate[Agent, P], T], *args: P.args, **names: P.kwargs
    ) -> T:
        """A method of the agent.

        Raises: TierFailed as the method does.
        """
        work = functools.partial(call, self.agent, *args, **names)
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Take no more calls; one that hangs ends with the process."""
        self._thread.shutdown(wait=False, cancel_futures=True)
