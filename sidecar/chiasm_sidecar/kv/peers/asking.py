"""One other replica as its asker sees it: who it is, and whether it is worth asking.

Must not know: which replicas there are, how bytes come from there, what a verdict on a record
means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chiasm_sidecar.kv.peers import wire
from chiasm_sidecar.kv.peers.base import Transport
from chiasm_sidecar.kv.peers.line import Line
from chiasm_sidecar.kv.tiers.arena import Place, slot_bytes
from chiasm_sidecar.kv.tiers.base import TierFailed
from chiasm_sidecar.kv.tiers.breaker import Breaker

_FAULTS = (OSError, EOFError, ValueError, TierFailed)


class Peer:
    """One address."""

    def __init__(
        self,
        address: str,
        port: int,
        transport: Transport,
        read_secret: Callable[[], bytes],
        timeout_seconds: float,
        max_read_bytes: int,
    ) -> None:
        """`max_read_bytes` is how much is read at once."""
        self.address = address
        self.breaker = Breaker()
        self.is_self = False
        self._own_name = transport.name
        self._max_read_bytes = max_read_bytes
        self._line = Line(address, port, read_secret, transport, self._met, timeout_seconds)
        self._reads = transport.reads(self._line)
        self._num_bytes = 0

    @property
    def connected(self) -> bool:
        """Whether it can be asked without saying who we are first."""
        return self._line.connected

    def allows(self, now: float) -> bool:
        """Whether to ask it now."""
        return not self.is_self and not self._reads.late and self.breaker.allows(now)

    async def look_up(self, lookup: wire.Lookup) -> list[Place | None]:
        """Where its records lie.

        Raises: TierFailed.
        """
        count = len(lookup.keys)
        try:
            async with self._line.speaking():
                if not self.is_self:
                    body = await self._line.call(wire.Kind.LOOKUP, wire.encode_lookup(lookup))
                    last = self._num_bytes - slot_bytes(lookup.record_bytes)
                    return wire.decode_places(body, count, last)
        except _FAULTS as error:
            raise _failed(error) from error
        self.close()
        return [None] * count

    async def _met(self, description: wire.Description) -> None:
        self._num_bytes = description.num_bytes
        self.is_self = description.name == self._own_name
        if not self.is_self:
            await self._reads.meet(description)

    async def read(self, places: Sequence[Place], record_bytes: int) -> list[bytes | None]:
        """The records in some slots; None where a slot was emptied or used again since.

        Raises: TierFailed.
        """
        stride = slot_bytes(record_bytes)
        at_once = self._max_read_bytes // stride
        if not at_once:
            raise TierFailed(f"peers: no room to read a slot of {stride} bytes; see landing_bytes")
        records: list[bytes | None] = []
        for start in range(0, len(places), at_once):
            part = places[start : start + at_once]
            try:
                records += await self._reads.read(part, stride)
            except _FAULTS as error:
                raise _failed(error) from error
        return records

    def close(self) -> None:
        """End the control connection; the next call makes a new one."""
        self._line.close()

    async def leave(self) -> bool:
        """The address is of nobody any more; whether no read is left under way."""
        self.close()
        return await self._reads.leave()

    def abandon(self) -> bool:
        """Everything ends; whether no read was under way."""
        self.close()
        return self._reads.abandon()


def _failed(error: Exception) -> TierFailed:
    """The kind of fault only: messages may name hosts."""
    if isinstance(error, TierFailed):
        return error
    words = str(error) if isinstance(error, ValueError) else type(error).__name__
    return TierFailed(f"peers: {words}")
