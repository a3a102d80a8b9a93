"""One-sided reads through NIXL: the only module that knows it. Blocking; nothing is thread-safe.

UCX reads whatever lies at an address: it knows no owner, no version and no end of a registration,
and reports a torn read as done. So nothing is believed of what comes from here, and a region that
was ever named to others stays where it is until the agent is gone.

A read that was begun is never taken back (releasing one under way is a use after free,
ai-dynamo/nixl issue 2067): its landing place stays its own until it has ended.

Over TCP only, on one interface and one port, so that a network policy can name it. Whoever reaches
that port can do anything to this process, so it is fenced in where the kernel allows it (fence.py).
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import logging
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from chiasm_sidecar.kv.peers.nixl.fence import Fence, listeners
from chiasm_sidecar.kv.tiers.arena import Region
from chiasm_sidecar.kv.tiers.base import TierFailed

log = logging.getLogger("chiasm.sidecar.kv")

_PACKAGE = "nixl_cu12"
# NIXL's thread sleeps until the network wakes it, or so long. With 0, which NIXL's own Python class
# sets whatever it is asked for, it spins: 0.9 of a core for an idle replica, against 0.001.
_PROGRESS_MICROSECONDS = 100_000
INSTALL = "pip install 'chiasm[peers]'"
_IMAGE = "the image chiasm/sidecar-peers, which the chart's images.sidecarPeers should name"
_ROUTES = Path("/proc/net/route")
_LOOPBACK = "lo"
_DEFAULT_ROUTE = "00000000"


class State(enum.Enum):
    """How a read stands."""

    RUNNING = enum.auto()
    DONE = enum.auto()
    FAILED = enum.auto()


def default_interface(routes: str) -> str:
    """The interface of the default route in the text of /proc/net/route; loopback without one."""
    rows = (line.split() for line in routes.splitlines()[1:])
    return next((row[0] for row in rows if len(row) > 1 and row[1] == _DEFAULT_ROUTE), _LOOPBACK)


def _fenced(before: Iterable[int], port: int) -> Fence:
    """A fence around what UCX listens on: what is new since before, where it was told to."""
    ours = []
    for each in listeners(before).values():
        if port in (0, each.getsockname()[1]):
            ours.append(each)
        else:
            each.close()
    try:
        return Fence(ours)
    except TierFailed as error:
        log.warning(
            "only a network policy keeps others from this process's memory",
            extra={"fields": {"port": port, "detail": str(error)}},
        )
        return Fence(())


class Agent:
    """This process's agent, the regions that it reads into and lets others read."""

    def __init__(self, port: int, interface: str | None) -> None:
        """Listen on a port; 0: any.

        Raises: TierFailed when NIXL is not installed or cannot start.
        """
        try:
            self._nixl = importlib.import_module(f"{_PACKAGE}._bindings")
        except ImportError as error:
            raise TierFailed(
                f"peers: {_PACKAGE} cannot be imported ({error}), so blocks of other replicas are "
                f"neither read nor served. It is in {_IMAGE}; elsewhere: {INSTALL}"
            ) from error
        if interface is None:
            routes = _ROUTES.read_text() if _ROUTES.exists() else ""
            interface = default_interface(routes)
        self.name = secrets.token_hex(16)
        self._regions: list[Region] = []
        before = listeners()
        for each in before.values():
            each.close()
        try:
            self._agent: Any = self._start(interface, port)
        except Exception as error:  # pybind11 has an exception class for each of NIXL's states
            raise TierFailed(
                f"peers: NIXL cannot use interface {interface} and port {port or 'any'}: {error}"
            ) from error
        self.fence = _fenced(before, port)

    def _start(self, interface: str, port: int) -> Any:
        config = self._nixl.nixlAgentConfig()
        config.useProgThread = True
        config.pthrDelay = _PROGRESS_MICROSECONDS
        agent = self._nixl.nixlAgent(self.name, config)
        ports = f",TCP_PORT_RANGE={port}-{port}" if port else ""
        agent.createBackend("UCX", {"engine_config": f"TLS=tcp,NET_DEVICES={interface}{ports}"})
        return agent

    def register(self, region: Region) -> None:
        """Let a region be read by others and read into."""
        self._regions.append(region)
        of = [(region.address, region.num_bytes, 0, "")]
        self._do("registerMem", self._nixl.nixlRegDList(self._nixl.DRAM_SEG, of))

    def metadata(self) -> bytes:
        """What others need to reach what is registered."""
        return bytes(self._do("getLocalMD"))

    def add(self, metadata: bytes) -> str:
        """Get to know another agent; its name."""
        return bytes(self._do("loadRemoteMD", metadata)).decode()

    def forget(self, name: str) -> None:
        """Take leave of an agent from which nothing is being read."""
        with contextlib.suppress(TierFailed):
            self._do("invalidateRemoteMD", name)

    def read(self, name: str, target: int, sources: Sequence[int], num_bytes: int) -> int:
        """Begin to read so many bytes from each address of an agent, back to back into `target`."""
        here = [(target + i * num_bytes, num_bytes, 0) for i in range(len(sources))]
        there = [(address, num_bytes, 0) for address in sources]
        into, of = (self._nixl.nixlXferDList(self._nixl.DRAM_SEG, part) for part in (here, there))
        handle = self._do("createXferReq", self._nixl.NIXL_READ, into, of, name)
        self._do("postXferReq", handle)
        return int(handle)

    def state(self, handle: int) -> State:
        """How a read stands."""
        try:
            status = self._agent.getXferStatus(handle)
        except Exception:  # see __init__
            return State.FAILED
        if status == self._nixl.NIXL_IN_PROG:
            return State.RUNNING
        return State.DONE if status == self._nixl.NIXL_SUCCESS else State.FAILED

    def release(self, handle: int) -> None:
        """Give up a read that has ended."""
        with contextlib.suppress(TierFailed):
            self._do("releaseXferReq", handle)

    def close(self) -> None:
        """End the agent; only then may the regions go."""
        self.fence.close()
        self._agent = None
        self._regions.clear()

    def _do(self, call: str, *args: object) -> Any:
        try:
            return getattr(self._agent, call)(*args)
        except Exception as error:  # see __init__
            raise TierFailed(f"peers: NIXL's {call}: {type(error).__name__}") from error
