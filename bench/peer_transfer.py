"""Bytes per second of records restored from another replica's memory, beside what could be had.

Two processes on this machine: a replica with records in its host tier, and one that reads them
through its peer tier, window by window as a FETCH does. In turn with that, in the same run:

    stream    look-up, bytes with a tag on the same connection, both ends, checksum, verdict
    nixl      the same, but a one-sided read by NIXL over UCX's TCP; where it is installed
    link      a plain TCP stream of as many bytes between the same two processes, into one buffer
    copy      as many bytes from memory to memory, and judged
    local     the same records through the reader's own host tier, judged

Ratios are medians of rounds, of stream and of nixl, each against the same round's other reading. On
one machine both ends of the link share its cores, which no pair of nodes does. No RDMA is here.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import hashlib
import importlib.util
import logging
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import xxhash
from chiasm_contract.block_batch import ExpectedShape
from chiasm_contract.block_guard import USE
from chiasm_contract.block_record import (
    HEADER_BYTES,
    Header,
    Modality,
    RecordKind,
    align_up,
    encode_header,
    encode_trailer,
    parse_header,
    record_bytes,
)
from chiasm_contract.block_wire import Tier as Place
from chiasm_contract.tiers import PeerTier as PeerSettings
from chiasm_contract.tiers import PeerTransport
from chiasm_sidecar.kv.meters import Meters
from chiasm_sidecar.kv.namespaces import Namespace, Registry
from chiasm_sidecar.kv.peers.tier import PeerTier
from chiasm_sidecar.kv.store import BlockStore
from chiasm_sidecar.kv.tiers.arena import ArenaTier, Region
from chiasm_sidecar.kv.tiers.base import Tier
from chiasm_sidecar.kv.tiers.level import Level
from chiasm_sidecar.metrics import Metrics
from reporting import publish
from stand_ins.peers import on_loopback

OWN, OTHER = "127.0.0.9", "127.0.0.2"
PORTS = {"stream": 19300, "nixl": 19302}
LINK_PORT = 19301
INSTALLED = importlib.util.find_spec("nixl_cu12") is not None
TRANSPORTS: tuple[PeerTransport, ...] = ("stream", "nixl") if INSTALLED else ("stream",)
SCOPE = hashlib.sha256(b"bench").digest()[:16]
REPR_FP = hashlib.sha256(b"repr").digest()
WINDOW_BYTES = 8 * 2**20
TIMEOUT_SECONDS = 60.0


def namespace(payload_bytes: int) -> Namespace:
    return Namespace("-".join(["0" * 16] * 3), ExpectedShape(REPR_FP, SCOPE, payload_bytes), b"{}")


def key(number: int) -> bytes:
    return hashlib.sha256(f"key {number}".encode()).digest()


def record(number: int, payload_bytes: int) -> bytes:
    data = number.to_bytes(4, "little") * (payload_bytes // 4)
    checksum = xxhash.xxh3_64_intdigest(data)
    head = Header(
        RecordKind.TEXT_KV,
        Modality.TEXT,
        16,
        payload_bytes,
        number,
        checksum,
        REPR_FP,
        key(number),
        SCOPE,
    )
    padding = bytes(align_up(payload_bytes) - payload_bytes)
    return encode_header(head) + data + padding + encode_trailer(head)


def peers(folder: Path, own: str, transport: PeerTransport) -> PeerSettings:
    port = PORTS[transport]
    return on_loopback(folder, own, OTHER, transport, port=port, timeout_seconds=TIMEOUT_SECONDS)


async def fill(arena: ArenaTier, count: int, payload_bytes: int) -> None:
    for number in range(count):
        data = record(number, payload_bytes)
        if await arena.put(namespace(payload_bytes), parse_header(data), data) is not USE:
            raise RuntimeError("The memory does not take what it is large enough for.")


async def serve(folder: Path, count: int, payload_bytes: int) -> None:
    """The other replica: its records, and a stream of as many bytes as it is asked for."""
    arena = ArenaTier(Region(2 * count * record_bytes(payload_bytes)), 1.0)
    await fill(arena, count, payload_bytes)
    meters = Meters(Metrics("bench"))
    tiers = [PeerTier(peers(folder, OTHER, each), arena, meters) for each in TRANSPORTS]
    for tier in tiers:
        await tier.open()
    print("ready", flush=True)
    await asyncio.to_thread(send, WINDOW_BYTES)
    for tier in tiers:
        await tier.close()


def send(chunk_bytes: int) -> None:
    chunk = bytes(os.urandom(chunk_bytes))
    with socket.create_server((OTHER, LINK_PORT)) as server:
        connection, _ = server.accept()
        with connection:
            while wanted := connection.recv(8, socket.MSG_WAITALL):
                left = int.from_bytes(wanted, "little")
                while left:
                    connection.sendall(memoryview(chunk)[: min(left, chunk_bytes)])
                    left -= min(left, chunk_bytes)


class Reader:
    """The replica that reads, and the other ways to get as many bytes."""

    def __init__(self, folder: Path, count: int, payload_bytes: int) -> None:
        self.namespace = namespace(payload_bytes)
        self.keys = [key(number) for number in range(count)]
        self.size = record_bytes(payload_bytes)
        self.window = max(1, WINDOW_BYTES // self.size)
        self.full = ArenaTier(Region(2 * count * self.size), 1.0)
        self._meters = Meters(Metrics("bench"))
        self.tiers = {
            each: PeerTier(peers(folder, OWN, each), ArenaTier(Region(2**21), 1.0), self._meters)
            for each in TRANSPORTS
        }
        self._buffer = bytearray(WINDOW_BYTES)
        tiers: dict[str, Tier] = {"local": self.full}
        tiers |= {str(name): tier for name, tier in self.tiers.items()}
        self._stores = {
            name: BlockStore([Level(tier, self._meters, time.monotonic)], Registry(), self._meters)
            for name, tier in tiers.items()
        }

    @property
    def num_bytes(self) -> int:
        return len(self.keys) * self.size

    async def read(self, name: str) -> None:
        store, place = self._stores[name], Place.HOST if name == "local" else Place.PEER
        for start in range(0, len(self.keys), self.window):
            keys = self.keys[start : start + self.window]
            deadline = time.monotonic() + TIMEOUT_SECONDS
            reading = await store.read(self.namespace, keys, deadline, TIMEOUT_SECONDS)
            if reading.verdicts != [USE] * len(keys) or set(reading.places) != {place}:
                raise RuntimeError(f"{name}: {reading.verdicts}")

    async def link(self) -> None:
        await asyncio.to_thread(self._receive)

    def connect(self) -> None:
        self._socket = socket.create_connection((OTHER, LINK_PORT))

    def _receive(self) -> None:
        self._socket.sendall(self.num_bytes.to_bytes(8, "little"))
        left = self.num_bytes
        while left:
            left -= self._socket.recv_into(self._buffer, min(left, WINDOW_BYTES))

    async def copy(self) -> None:
        view = self.full.arena.region.view
        for start in range(0, self.num_bytes, WINDOW_BYTES):
            part = view[start : min(start + WINDOW_BYTES, self.num_bytes)]
            self._buffer[: len(part)] = part
            for at in range(HEADER_BYTES, len(part), self.size):
                xxhash.xxh3_64_intdigest(memoryview(self._buffer)[at : at + self.size])

    def close(self) -> None:
        self._socket.close()


async def measure(reader: Reader, rounds: int) -> dict[str, list[float]]:
    """Seconds of each way, in turn."""
    ways: dict[str, Callable[[], Awaitable[None]]] = {
        **{each: functools.partial(reader.read, each) for each in TRANSPORTS},
        "link": reader.link,
        "local": functools.partial(reader.read, "local"),
        "copy": reader.copy,
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            begun = time.perf_counter()
            await way()
            if number:  # the first round connects and touches memory for the first time
                seconds[name].append(time.perf_counter() - begun)
    return seconds


async def run(folder: Path, count: int, payload_bytes: int, rounds: int) -> dict[str, object]:
    (folder / "secret").write_bytes(os.urandom(32))
    command = [sys.executable, __file__, "--serve", str(folder)]
    command += ["--records", str(count), "--payload-bytes", str(payload_bytes)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        if process.stdout is None or (await process.stdout.readline()).strip() != b"ready":
            raise RuntimeError("The other replica did not start.")
        reader = Reader(folder, count, payload_bytes)
        await fill(reader.full, count, payload_bytes)
        for tier in reader.tiers.values():
            await tier.open()
        reader.connect()
        seconds = await measure(reader, rounds)
        reader.close()
        for tier in reader.tiers.values():
            await tier.close()
    finally:
        process.kill()
        await process.wait()
    rates = {
        f"{name}_mb_per_s": round(reader.num_bytes / statistics.median(each) / 1e6)
        for name, each in seconds.items()
    }
    ratios = {
        f"{ours}_vs_{name}": round(
            statistics.median(b / a for a, b in zip(seconds[ours], each, strict=True)), 3
        )
        for ours in TRANSPORTS
        for name, each in seconds.items()
        if name not in TRANSPORTS
    }
    return {"payload_bytes": payload_bytes, "num_records": count, **rates, **ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--records", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--payload-bytes", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--total-mib", type=int, default=128, help="read in each round")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    if options.serve:
        asyncio.run(serve(options.serve, options.records, options.payload_bytes))
        return
    sizes = {"small": 32 * 2**10, "medium": 256 * 2**10, "large": 2 * 2**20}
    figures = {}
    for name, size in sizes.items():
        with tempfile.TemporaryDirectory() as folder:
            count = options.total_mib * 2**20 // size
            figures[name] = asyncio.run(run(Path(folder), count, size, options.rounds))
    publish("peer_transfer", figures)


if __name__ == "__main__":
    main()
