"""Another replica in a process of its own: what lies in its memory, and what it says of it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from chiasm_contract.block_record import Header, Modality, RecordKind
from chiasm_contract.tiers import PeerTier as PeerSettings
from chiasm_contract.tiers import PeerTransport
from chiasm_sidecar.kv.meters import Meters
from chiasm_sidecar.kv.namespaces import Namespace
from chiasm_sidecar.kv.peers.tier import PeerTier
from chiasm_sidecar.kv.tiers.arena import ArenaTier, Place, Region
from chiasm_sidecar.metrics import Metrics
from stand_ins.peers import on_loopback

from faults.process import Told

PORT = 19400
_TIMEOUT_SECONDS = 15
_LEAD_BYTES = 64  # of a slot, before its record
_REGION_BYTES = 2**22


def peers(folder: Path, own: str, other: str, transport: PeerTransport) -> PeerSettings:
    secret = folder / "secret"
    if not secret.exists():
        secret.write_bytes(b"0123456789abcdef0123456789abcdef")
    return on_loopback(folder, own, other, transport, port=PORT, timeout_seconds=_TIMEOUT_SECONDS)


class Memory(ArenaTier):
    """The replica's records; it says of some keys that they lie where others do."""

    def __init__(self, namespace: Namespace) -> None:
        super().__init__(Region(_REGION_BYTES), 1.0)
        self._namespace = namespace
        self._misled: dict[bytes, bytes] = {}
        self._writing: asyncio.Task[None] | None = None

    def find(self, name: str, record_bytes: int, keys: Sequence[bytes]) -> list[Place | None]:
        return super().find(name, record_bytes, [self._misled.get(key, key) for key in keys])

    async def do(self, order: dict[str, str]) -> None:
        """Put a record, put one in another's slot, write into a slot, or say what is not so."""
        key = bytes.fromhex(order.get("key", ""))
        record = bytes.fromhex(order.get("record", ""))
        match order["do"]:
            case "put":
                head = Header(
                    RecordKind.MEDIA_KV, Modality.IMAGE, 0, 0, 0, 0, bytes(32), key, bytes(16)
                )
                await self.put(self._namespace, head, record)
            case "drop":
                await self.drop(self._namespace, key)
            case "write":
                self._write(key, record)
            case "mislead":
                self._misled[key] = bytes.fromhex(order["other"])
            case "rewrite":
                records = record, bytes.fromhex(order["other"])
                self._writing = asyncio.create_task(self._rewrite(key, records))
            case "stop":
                assert self._writing is not None
                self._writing.cancel()

    def _write(self, key: bytes, data: bytes) -> None:
        """All of a slot but its generation."""
        place = self._places[self._namespace.name][key]
        start, size = place.offset + _LEAD_BYTES, self._record_bytes
        self.arena.region.view[start : start + size] = data.ljust(size, b"\0")[:size]

    async def _rewrite(self, key: bytes, records: Sequence[bytes]) -> None:
        """One record and another by turns, in pieces, as an owner does that nothing holds back."""
        view = self.arena.region.view
        place = self._places[self._namespace.name][key]
        while True:
            for record in records:
                for start in range(0, len(record), 256):
                    piece = record[start : start + 256]
                    at = place.offset + _LEAD_BYTES + start
                    view[at : at + len(piece)] = piece
                    await asyncio.sleep(0)


async def serve(folder: Path, address: str, namespace: Namespace, transport: PeerTransport) -> None:
    """Until standard input ends."""
    memory = Memory(namespace)
    tier = PeerTier(peers(folder, address, address, transport), memory, Meters(Metrics("bench")))
    await tier.open()
    print("listening", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        await memory.do(json.loads(line))
        print("done", flush=True)
    await tier.close()


class Replica(Told):
    """The process."""

    def __init__(self, folder: Path, address: str, transport: PeerTransport) -> None:
        super().__init__("--replica", folder, "--address", address, "--transport", transport)
