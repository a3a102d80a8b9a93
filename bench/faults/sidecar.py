"""A sidecar's block service in a process of its own, one service for each tier; can be held up.

It is told what to do by lines of JSON: hold answers back, let them go, put bytes into its memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import uvloop
from chiasm_contract.block_guard import USE
from chiasm_contract.block_record import Header, Modality, RecordKind, record_bytes
from chiasm_contract.tiers import BlockTiers, PeerTransport
from chiasm_sidecar.kv import assembly, service
from chiasm_sidecar.kv.namespaces import Namespace, Release
from chiasm_sidecar.kv.peers import landing, wire
from chiasm_sidecar.kv.peers.asking import Peer
from chiasm_sidecar.kv.peers.tier import PeerTier
from chiasm_sidecar.kv.store import BlockStore
from chiasm_sidecar.kv.tiers.base import TierFailed
from chiasm_sidecar.kv.tiers.breaker import Breaker
from chiasm_sidecar.metrics import Metrics

from faults.blocks import PAYLOAD_BYTES, report, wanted
from faults.process import Told
from faults.replica import peers

OWN_TIERS = ("host", "disk", "valkey")
TIERS = (*OWN_TIERS, "peer")
INCARNATION = "bench"
# Of the asking process and of the replica, in each arm.
ADDRESSES = {
    "guarded": ("127.0.0.9", "127.0.0.2"),
    "unguarded": ("127.0.0.8", "127.0.0.3"),
}


class Unguarded(BlockStore):
    """Hands out whatever lies there."""

    def _judge(self, op: Any, place: Any, namespace: Any, keys: Any, records: Any) -> Any:
        return [USE] * len(records)


def namespace() -> Namespace:
    """Where the wanted blocks lie."""
    said = report(INCARNATION)
    release = Release(said.compute_fp, said.repr_fp, PAYLOAD_BYTES, said.fields)
    return release.namespace(bytes.fromhex(wanted(0).scope_fp))


def settings(
    folder: Path, tier: str, valkey_port: int, arm: str, transport: PeerTransport
) -> BlockTiers:
    given: dict[str, Any] = {
        "host": {"host_bytes": 2**26},
        "disk": {"disk": {"path": folder / "blocks", "max_bytes": 2**26}},
        "valkey": {
            "valkey": {
                "host": "127.0.0.1", "port": valkey_port, "key_prefix": arm, "timeout_seconds": 10,
            }
        },
        "peer": {"host_bytes": 2**22, "peers": peers(folder, *ADDRESSES[arm], transport)},
    }  # fmt: skip
    return BlockTiers(
        socket_path=folder / f"{tier}.sock",
        staging_path=folder / f"{tier}.staging",
        staging_bytes=2**20,
        fetch_timeout_seconds=20,
        **given[tier],
    )


def stand_open() -> None:
    """Nothing is judged, whoever comes is admitted, and who came before goes on."""
    vars(assembly)["BlockStore"] = Unguarded
    vars(service)["refusal"] = lambda _, admitted, __: admitted
    nobody = property(lambda _: None, lambda *_: None)
    service.BlockService._served = nobody  # type: ignore[assignment]
    vars(landing)["record_in"] = lambda slot, _: bytes(slot[64:-64])


class Serving:
    """The services of one process, and what they are told."""

    def __init__(self) -> None:
        self.said = report(INCARNATION)
        self.stores: dict[str, BlockStore] = {}
        self._free, self._may_read = asyncio.Event(), asyncio.Event()
        self._num_reads = 0
        self._free.set()
        self._may_read.set()

    def hold_back(self, store: BlockStore) -> None:
        """Make questions wait while they are told to."""
        read = store.read

        async def held(*arguments: Any) -> Any:
            await self._free.wait()
            return await read(*arguments)

        vars(store)["read"] = held

    def hold_reads_back(self) -> None:
        """The same for reads of another replica's memory, between look-up and read."""
        read, turn = Peer.read, asyncio.Lock()

        async def held(*arguments: Any) -> Any:
            self._num_reads += 1
            await self._may_read.wait()
            async with turn:  # A replica is not read from by many at once.
                return await read(*arguments)

        Peer.read = held  # type: ignore[method-assign, assignment]

    async def do(self, order: dict[str, Any]) -> None:
        """One order."""
        match order["do"]:
            case "hold":
                self._free.clear()
            case "free":
                self._free.set()
            case "admit":
                self.said = report(order["incarnation"])
            case "put":
                await self._put(order["tier"], order["key"], order["record"])
            case "forget":
                for key in order["keys"]:
                    await self.stores["peer"].levels[0].tier.drop(namespace(), bytes.fromhex(key))
            case "calm":
                self._peer.breaker = Breaker()
                self.stores["peer"].levels[1].breaker = Breaker()
            case "hold reads":
                self._num_reads = 0
                self._may_read.clear()
            case "await reads":
                while self._num_reads < order["count"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            case "free reads":
                self._may_read.set()
            case "meet":
                await self._meet(bytes.fromhex(order["key"]))

    async def _put(self, tier: str, key: str, record: str) -> None:
        """Under a key that is free, for whoever writes there first."""
        held = self.stores[tier].levels[0].tier
        place = Header(
            RecordKind.MEDIA_KV,
            Modality.IMAGE,
            0,
            0,
            0,
            0,
            bytes(32),
            bytes.fromhex(key),
            bytes(16),
        )
        await held.drop(namespace(), place.block_key)
        if await held.put(namespace(), place, bytes.fromhex(record)) is not USE:
            raise RuntimeError(f"{tier} does not take a record")

    @property
    def _peer(self) -> Peer:
        tier = self.stores["peer"].levels[1].tier
        assert isinstance(tier, PeerTier)
        (peer,) = tier._peers.values()
        return peer

    async def opened(self) -> None:
        """Wait until replicas can be asked."""
        peers_tier = self.stores["peer"].levels[1].tier
        assert isinstance(peers_tier, PeerTier)
        while not peers_tier._peers:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def _meet(self, key: bytes) -> None:
        """Ask the replica until it answers."""
        lookup = wire.Lookup(namespace().name, record_bytes(PAYLOAD_BYTES), (key,))
        while True:
            try:
                await self._peer.look_up(lookup)
            except TierFailed:
                await asyncio.sleep(0.01)
            else:
                return


async def serve(folder: Path, arm: str, valkey_port: int, transport: PeerTransport) -> None:
    """Until standard input ends."""
    if arm == "unguarded":
        stand_open()
    serving = Serving()
    serving.hold_reads_back()
    async with contextlib.AsyncExitStack() as stack:
        for tier in TIERS:
            started = assembly.block_service(
                settings(folder, tier, valkey_port, arm, transport),
                lambda: serving.said,
                Metrics("bench"),
                print,
            )
            serving.stores[tier] = await stack.enter_async_context(started)
            serving.hold_back(serving.stores[tier])
        await serving.opened()
        reader = asyncio.StreamReader(limit=2**24)
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        print("listening", flush=True)
        while line := await reader.readline():
            await serving.do(json.loads(line))
            print("done", flush=True)


class Sidecar(Told):
    """The process."""

    def __init__(self, folder: Path, arm: str, valkey_port: int, transport: PeerTransport) -> None:
        super().__init__(
            "--serve", folder, "--arm", arm, "--valkey", valkey_port, "--transport", transport
        )
        self.folder = folder


def run(folder: Path, arm: str, valkey_port: int, transport: PeerTransport) -> None:
    """The process's own side."""
    uvloop.run(serve(folder, arm, valkey_port, transport))
