"""Who may connect to the transport's port: only addresses that have proved to know the secret.

UCX asks nobody who he is, and whoever reaches its port over TCP reads and writes any address of
this process, whatever was registered. So the kernel is told to drop what comes to that port from
anywhere else, by a socket filter. A connection that stands keeps the filter of its beginning.
Between UCX's first `listen` and the first filter lie some milliseconds.

Some kernels (6.18.44 was seen to) let only CAP_NET_ADMIN filter TCP, which no pod of ours has.
There the fence is open, says so, and the network policy alone keeps others away.

Addresses are the kernel's: behind a translation of addresses all who share one are let in. IPv4
only.

Must not know: UCX, NIXL, why somebody is let in.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from chiasm_sidecar.kv.tiers.base import TierFailed

_FDS = Path("/proc/self/fd")
_SO_ATTACH_FILTER = 26
_FILTER = struct.Struct("HxxxxxxP")
_INSTRUCTION = struct.Struct("HBBI")
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_SOURCE = 0xFFF00000 + 12  # SKF_NET_OFF, and where an IPv4 header has its source
_EVERYTHING, _NOTHING = 0xFFFFFFFF, 0
MAX_ADDRESSES = 2000  # two instructions each, of which a filter has at most 4096


def program(addresses: Iterable[str]) -> bytes:
    """The filter that lets packets from some addresses through."""
    instructions = [(_LOAD, 0, 0, _SOURCE)]
    for address in addresses:
        (number,) = struct.unpack("!I", socket.inet_pton(socket.AF_INET, address))
        instructions += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _EVERYTHING)]
    instructions.append((_RETURN, 0, 0, _NOTHING))
    return b"".join(_INSTRUCTION.pack(*each) for each in instructions)


class Fence:
    """Around listening sockets, nobody within at first; around none it is open."""

    def __init__(self, listeners: Iterable[socket.socket]) -> None:
        """Take over the sockets, which are others' duplicates.

        Raises: TierFailed when one cannot be fenced in.
        """
        self._listeners = list(listeners)
        self._admitted: Counter[str] = Counter()
        try:
            if any(each.family != socket.AF_INET for each in self._listeners):
                raise TierFailed("peers: the transport listens on IPv6, which cannot be fenced in")
            self._apply()
        except BaseException:
            self.close()
            raise

    @property
    def stands(self) -> bool:
        """Whether it keeps anybody out."""
        return bool(self._listeners)

    def admit(self, address: str) -> None:
        """Let an address in, once more.

        Raises: TierFailed when that cannot be.
        """
        if self.stands and not _is_ipv4(address):
            raise TierFailed(f"peers: a replica comes from {address}; blocks travel by IPv4 alone")
        self._admitted[address] += 1
        if self._admitted[address] == 1:
            try:
                self._apply()
            except TierFailed:
                del self._admitted[address]
                raise

    def dismiss(self, address: str) -> None:
        """Take back one `admit`; with the last one no new connection is let in."""
        self._admitted[address] -= 1
        if not self._admitted[address]:
            del self._admitted[address]
            self._apply()

    def _apply(self) -> None:
        if len(self._admitted) > MAX_ADDRESSES:
            raise TierFailed(f"peers: more than {MAX_ADDRESSES} replicas")
        try:
            code = program(self._admitted)
            memory = ctypes.create_string_buffer(code, len(code))
            length = len(code) // _INSTRUCTION.size
            option = _FILTER.pack(length, ctypes.addressof(memory))
            for each in self._listeners:
                each.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, option)
        except OSError as error:
            raise TierFailed(f"peers: the port cannot be fenced in: {error}") from error

    def close(self) -> None:
        """Let go of the sockets; the filters stay."""
        for each in self._listeners:
            each.close()
        self._listeners.clear()


def _is_ipv4(address: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET, address)
    except OSError:
        return False
    return True


def listeners(known: Iterable[int] = ()) -> dict[int, socket.socket]:
    """Duplicates of this process's listening TCP sockets by inode, without those known."""
    found: dict[int, socket.socket] = {}
    for name in os.listdir(_FDS):
        with contextlib.suppress(OSError):  # closed meanwhile, or no socket
            inode = os.fstat(int(name)).st_ino
            if inode not in known and inode not in found:
                opened = _socket(int(name))
                if opened is not None:
                    found[inode] = opened
    return found


def _socket(number: int) -> socket.socket | None:
    copy = os.dup(number)
    try:
        opened = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
    tcp = opened.family in (socket.AF_INET, socket.AF_INET6) and opened.type == socket.SOCK_STREAM
    if tcp and opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return opened
    opened.close()
    return None
