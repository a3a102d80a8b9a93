"""What a transport is: how the bytes of records come from other replicas, once it is known where.

Must not know: which replicas there are, what a verdict on a record means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from chiasm_sidecar.kv.peers import wire
from chiasm_sidecar.kv.peers.line import Line
from chiasm_sidecar.kv.tiers.arena import Place, Region


class Reads(Protocol):
    """Reads from one replica."""

    @property
    def late(self) -> bool:
        """Whether something of a read that was given up is still on its way."""

    async def meet(self, description: wire.Description) -> None:
        """Somebody answers under the address, perhaps another process than before.

        Raises: TierFailed, or ValueError when his memory cannot be read this way.
        """

    async def read(self, places: Sequence[Place], slot_bytes: int) -> list[bytes | None]:
        """The records in slots that fit into a berth; None where there is another content.

        Raises: TierFailed, OSError, EOFError, ValueError.
        """

    async def leave(self) -> bool:
        """The address is of nobody any more; whether no read is left under way."""

    def abandon(self) -> bool:
        """Everything ends; whether no read was under way."""


class Transport(Protocol):
    """One for a process."""

    name: str
    """Of this process and no other."""

    async def open(self, memory: Region) -> wire.Description:
        """Let the records in a region be read; what others must know of it.

        Raises: TierFailed. May be called again then.
        """

    @property
    def fenced(self) -> bool:
        """Whether nobody reaches the memory without the secret."""

    def admit(self, address: str) -> None:
        """Somebody there has the secret.

        Raises: TierFailed.
        """

    def dismiss(self, address: str) -> None:
        """Take back one `admit`."""

    def reads(self, line: Line) -> Reads:
        """From the replica at the other end of a line."""

    async def close(self, idle: bool) -> None:
        """End; not idle: some reads are still under way."""
