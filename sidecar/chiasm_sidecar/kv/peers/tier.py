"""The other replicas as one tier: read only, for each replica writes its own memory.

Up to 16 of them are asked at once, chosen by what is sought (choosing.py), and each record is read
from one that has it, the one of which least is read so far. A replica that fails or is slow is left
alone by a breaker of its own; when none answers, the tier has failed. Which replicas there are is
asked of the DNS again and again; what it said last holds while it says nothing. This process finds
itself among them and leaves itself out.

What was read and is of no use is not asked of other replicas again, and counts against the one that
it came from.

Must not know: what a verdict on a record means.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TypeVar

from chiasm_contract.block_guard import Outcome, Verdict
from chiasm_contract.block_record import Header, Holding, record_bytes
from chiasm_contract.block_wire import Tier as TierName
from chiasm_contract.tiers import PeerTier as PeerSettings
from chiasm_contract.tiers import begins

from chiasm_sidecar.kv.meters import Meters
from chiasm_sidecar.kv.namespaces import Namespace
from chiasm_sidecar.kv.peers import wire
from chiasm_sidecar.kv.peers.asking import Peer
from chiasm_sidecar.kv.peers.base import Transport
from chiasm_sidecar.kv.peers.choosing import asked_for, share
from chiasm_sidecar.kv.peers.landing import Landing
from chiasm_sidecar.kv.peers.nixl.transport import NixlTransport
from chiasm_sidecar.kv.peers.serving import Serving
from chiasm_sidecar.kv.peers.stream import StreamTransport
from chiasm_sidecar.kv.tiers.arena import ArenaTier, Place
from chiasm_sidecar.kv.tiers.base import TierFailed

log = logging.getLogger("chiasm.sidecar.kv")

T = TypeVar("T")

_NUM_BERTHS = 8
_MAX_REMEMBERED = 4096
_NOT_HERE = Verdict(Outcome.MISS, "busy")


@dataclass
class _Asked:
    """One replica in one call."""

    peer: Peer
    places: list[Place | None] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)
    records: list[bytes | None] = field(default_factory=list)
    failed: bool = False

    @property
    def having(self) -> frozenset[int]:
        """The records that it has, unless it failed."""
        found = () if self.failed else enumerate(self.places)
        return frozenset(at for at, place in found if place is not None)


class PeerTier:
    """This replica among others: what it has is served, what it lacks is read from them."""

    place = TierName.PEER

    def __init__(
        self,
        settings: PeerSettings,
        arena: ArenaTier,
        meters: Meters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._arena = arena
        self._meters = meters
        self._clock = clock
        self._landing = Landing(settings.landing_bytes, _NUM_BERTHS)
        self._transport = _transport(settings, self._landing)
        self._peers: dict[str, Peer] = {}
        self._leaving: set[Peer] = set()
        self._given: OrderedDict[tuple[str, bytes], Peer] = OrderedDict()
        self._shunned: OrderedDict[tuple[str, bytes], None] = OrderedDict()
        self._retired: set[str] = set()
        self._running = AsyncExitStack()

    async def open(self) -> None:
        """Claim the ports, and look for others from now on.

        Raises: TierFailed when a port, the secret or the transport cannot be used.
        """
        settings, transport = self._settings, self._transport
        self._read_secret()
        description = await transport.open(self._arena.arena.region)
        serving = Serving(
            self._read_secret,
            description,
            self._arena,
            self._meters.peer_refused,
            transport,
            settings.timeout_seconds,
        )
        try:
            await self._running.enter_async_context(
                serving.listening(settings.listen_host, settings.port)
            )
        except OSError as error:
            raise TierFailed(
                f"peers: cannot listen on port {settings.port}: errno {error.errno}"
            ) from error
        self._meters.peers_fenced(transport.fenced)
        self._meters.follow_peers(lambda: sum(peer.connected for peer in self._peers.values()))
        await self.find_others()
        finding = asyncio.create_task(self._keep_finding())
        self._running.callback(finding.cancel)
        words = {"port": settings.port, "transport": settings.transport}
        log.info("blocks are shared with other replicas", extra={"fields": words})

    def _read_secret(self) -> bytes:
        """The secret as it is now; a changed one holds for the next connection.

        Raises: TierFailed when there is none of use.
        """
        try:
            secret = self._settings.secret_path.read_bytes().rstrip(b"\r\n")
        except OSError as error:
            raise TierFailed(f"peers: secret_path cannot be read, errno {error.errno}") from error
        if len(secret) < wire.MIN_SECRET_BYTES:
            raise TierFailed(
                f"peers: the secret has {len(secret)} bytes; give all replicas the same "
                f"{wire.MIN_SECRET_BYTES} or more random ones."
            )
        return secret

    async def _keep_finding(self) -> None:
        while True:
            await asyncio.sleep(self._settings.refresh_seconds)
            try:
                await self.find_others()
            except Exception:
                # Nobody awaits this before the end; ended, no replica would be found any more.
                log.exception("looking for other replicas failed; this is a bug")

    async def find_others(self) -> None:
        """Ask the DNS who is there."""
        found: set[str] = set()
        for host in self._settings.hosts:
            try:
                found |= await _addresses(host)
            except OSError:
                # Also what a name says of which nobody is ready yet.
                found |= set(self._peers)
        for address in found - self._peers.keys():
            self._peers[address] = Peer(
                address,
                self._settings.port,
                self._transport,
                self._read_secret,
                self._settings.timeout_seconds,
                self._landing.berth_bytes,
            )
        self._leaving |= {self._peers.pop(address) for address in self._peers.keys() - found}
        for peer in list(self._leaving):
            if await peer.leave():
                self._leaving.discard(peer)

    async def get_many(self, namespace: Namespace, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Ask those that are worth asking, and read from those that have something."""
        name, now = namespace.name, self._clock()
        records: list[bytes | None] = [None] * len(keys)
        wanted = [i for i, key in enumerate(keys) if (name, key) not in self._shunned]
        willing = [address for address, peer in self._peers.items() if peer.allows(now)]
        if not wanted or not willing or any(begins(name, prefix) for prefix in self._retired):
            return records
        asked = [_Asked(self._peers[each]) for each in asked_for(willing, name, keys[wanted[0]])]
        size = record_bytes(namespace.shape.payload_bytes)
        lookup = wire.Lookup(name, size, tuple(keys[i] for i in wanted))
        await asyncio.gather(*[self._look_up(each, lookup) for each in asked])
        having = [each.having for each in asked]
        for each, chosen in zip(asked, share(having, len(wanted)), strict=True):
            each.chosen = chosen
        await asyncio.gather(*[self._read(each, size) for each in asked if each.chosen])
        for each in asked:
            if not each.failed:
                each.peer.breaker.succeeded()
            for at, record in zip(each.chosen, each.records, strict=False):
                if record is not None:
                    records[wanted[at]] = record
                    self._given[name, keys[wanted[at]]] = each.peer
        _forget_oldest(self._given)
        if all(each.failed for each in asked):
            raise TierFailed("peers: no replica answered in time")
        return records

    async def _look_up(self, asked: _Asked, lookup: wire.Lookup) -> None:
        try:
            asked.places = await asked.peer.look_up(lookup)
        except TierFailed as error:
            self._failed(asked, error)

    async def _read(self, asked: _Asked, size: int) -> None:
        places = [place for at in asked.chosen if (place := asked.places[at])]
        try:
            asked.records = await asked.peer.read(places, size)
        except TierFailed as error:
            self._failed(asked, error)
        self._meters.overtaken(asked.records.count(None))

    def _failed(self, asked: _Asked, error: TierFailed) -> None:
        asked.failed = True
        was_open = asked.peer.breaker.open
        asked.peer.breaker.failed(self._clock())
        self._meters.peer_failed()
        if asked.peer.breaker.open and not was_open:
            words = {"address": asked.peer.address, "detail": str(error)}
            log.warning("a replica is left alone for a while", extra={"fields": words})

    async def put(self, namespace: Namespace, header: Header, record: bytes) -> Verdict:
        """Nothing is written to others."""
        return _NOT_HERE

    async def drop(self, namespace: Namespace, key: bytes) -> None:
        """It was of no use: it is another's, so do not ask for it again."""
        self._shunned[namespace.name, key] = None
        _forget_oldest(self._shunned)
        peer = self._given.pop((namespace.name, key), None)
        if peer is not None:
            peer.breaker.failed(self._clock())

    async def retire(self, prefix: str) -> bool:
        """Nothing of it is asked for any more."""
        stood = prefix in self._retired
        self._retired.add(prefix)
        return not stood

    async def sweep(self, prefix: str, max_records: int) -> int:
        """Each replica sweeps its own."""
        return 0

    def tombstones(self) -> Iterable[str]:
        """None of its own."""
        return ()

    async def close(self) -> None:
        """Stop serving and asking."""
        await self._running.aclose()
        everyone = [*self._peers.values(), *self._leaving]
        num_busy = sum(not peer.abandon() for peer in everyone)
        await self._transport.close(idle=not num_busy)

    def touch(self, namespace: Namespace, keys: Iterable[bytes]) -> None:
        """A look-up was the peer's hint already."""

    def drain(self, namespaces: frozenset[str]) -> None:
        """Others decide for themselves."""

    def bytes_by_namespace(self) -> Mapping[str, int]:
        """Nothing is held here."""
        return {}

    def bytes_by_holding(self) -> Mapping[Holding, int]:
        """Nothing is held here."""
        return {}


def _transport(settings: PeerSettings, landing: Landing) -> Transport:
    if settings.transport == "nixl":
        return NixlTransport(landing, settings.data_port, settings.interface)
    return StreamTransport(landing)


def _forget_oldest(memory: OrderedDict[tuple[str, bytes], T]) -> None:
    while len(memory) > _MAX_REMEMBERED:
        memory.popitem(last=False)


async def _addresses(host: str) -> set[str]:
    """Raises: OSError when the name says nothing."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return {str(each[4][0]) for each in found}
