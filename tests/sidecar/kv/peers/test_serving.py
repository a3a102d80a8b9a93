"""Records as bytes in an answer, at the replica that has them: whole slots only, whoever asks what,
and piece by piece between the requests of others."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path

import pytest
from chiasm_contract.block_record import parse_header
from chiasm_sidecar.kv.peers import serving, wire
from chiasm_sidecar.kv.peers.serving import read_frame
from chiasm_sidecar.kv.tiers.arena import ArenaTier, Place, slot_bytes

from tests.sidecar.conftest import until
from tests.sidecar.kv.conftest import (
    NAMESPACE,
    RECORD_BYTES,
    Service,
    StartService,
    key,
    keys,
    record,
)
from tests.sidecar.kv.peers.conftest import OWN
from tests.sidecar.kv.peers.replica import PORT, SECRET, settings

SLOT_BYTES = slot_bytes(RECORD_BYTES)
COUNT = 4
Parts = list[bytes | memoryview]


@dataclass
class Line:
    """Somebody who has the secret, and asks a service by hand."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    channel: wire.Channel

    async def call(self, kind: wire.Kind, body: bytes) -> bytes:
        self.writer.write(self.channel.seal(kind, body))
        return await self.hear()

    async def hear(self) -> bytes:
        async with asyncio.timeout(20):
            return bytes(self.channel.open(await read_frame(self.reader))[1])

    async def places(self, count: int) -> tuple[Place, ...]:
        body = wire.encode_lookup(wire.Lookup(NAMESPACE.name, RECORD_BYTES, keys(count)))
        found = wire.decode_places(await self.call(wire.Kind.LOOKUP, body), count, 2**30)
        return tuple(place for place in found if place)

    def ask_for(self, *places: Place, size: int = SLOT_BYTES) -> None:
        body = wire.encode_read(wire.Read(size, places))
        self.writer.write(self.channel.seal(wire.Kind.READ, body))

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@pytest.fixture
async def serving_replica(
    start_service: StartService, tmp_path: Path, request: pytest.FixtureRequest
) -> Service:
    """Its parameter, if it has one, is `timeout_seconds`."""
    peers = settings(tmp_path, OWN, (OWN,), **getattr(request, "param", {}))
    service = await start_service(peers=peers)

    async def opened() -> bool:
        return service.value("chiasm_kv_peers_fenced") == 1

    await until(opened)
    memory = service.store.levels[0].tier
    for number in range(COUNT):
        data = record(number)
        await memory.put(NAMESPACE, parse_header(data), data)
    return service


async def connect(limit: int = 2**16) -> Line:
    reader, writer = await asyncio.open_connection(OWN, PORT, limit=limit)
    writer.write(wire.encode_hello(bytes(32)))
    theirs = wire.check_proof(SECRET, bytes(32), await reader.readexactly(wire.PROOF_BYTES))
    return Line(reader, writer, wire.Channel(SECRET, bytes(32), theirs, asker=True))


def memory_of(service: Service) -> ArenaTier:
    tier = service.store.levels[0].tier
    assert isinstance(tier, ArenaTier)
    return tier


async def test_a_slot_used_again_while_it_is_sent_is_nothing_to_who_reads_it(
    serving_replica: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = memory_of(serving_replica)
    monkeypatch.setattr(wire, "PIECE_BYTES", 256)
    piece, drops = memory.arena.piece, [key(2)]

    def overtaken(places: tuple[Place, ...], size: int, start: int, end: int) -> Parts:
        if drops and start > 2 * SLOT_BYTES + 256:
            memory._remove(NAMESPACE.name, drops.pop())
            memory._keep(NAMESPACE.name, key(9), record(9))
        return piece(places, size, start, end)

    monkeypatch.setattr(memory.arena, "piece", overtaken)
    line = await connect()
    places = await line.places(COUNT)
    line.ask_for(*places)
    data = b""
    while len(data) < COUNT * SLOT_BYTES:
        data += await line.hear()
    await line.close()
    assert not drops
    slots = [data[i * SLOT_BYTES : (i + 1) * SLOT_BYTES] for i in range(COUNT)]
    expected = [memory.arena.record(place) for place in places[:2]]
    assert [slot[64:-64] for slot in slots[:2]] == expected
    third = slots[2]
    assert third[:8] == places[2].generation.to_bytes(8, "little")
    assert third[-64:] == bytes(64), "its end says that it was overtaken"
    assert record(9)[-256:] not in third, "nor is anything of its successor in it"


async def test_nothing_but_whole_slots_of_the_memory_is_sent(serving_replica: Service) -> None:
    line = await connect()
    first, *_ = await line.places(COUNT)
    for wrong, size in (
        (Place(first.offset + 8, first.generation), SLOT_BYTES),
        (Place(first.offset, first.generation + 1000), SLOT_BYTES),
        (Place(2**50, first.generation), SLOT_BYTES),
        (Place(first.offset, 0), SLOT_BYTES),
        (first, SLOT_BYTES + 64),
    ):
        line.ask_for(wrong, size=size)
        assert await line.hear() == bytes(size)
    line.ask_for(first, size=2**31)
    with pytest.raises(asyncio.IncompleteReadError):
        await line.hear()
    await line.close()
    assert serving_replica.value("chiasm_kv_peers_refused_total", reason="denied") == 1


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_MIN_PATIENCE_SECONDS", 0.3)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("serving_replica", [{"timeout_seconds": 0.2}], indirect=True)
async def test_one_that_takes_nothing_of_its_answer_holds_up_nobody_and_is_left(
    serving_replica: Service,
) -> None:
    silent, other = await connect(), await connect()
    places = await silent.places(COUNT)
    silent.reader._transport.pause_reading()  # type: ignore[attr-defined]
    many = places * 150
    for _ in range(100):  # more than any socket holds
        silent.ask_for(*many)
    other.ask_for(*places)
    data = b""
    while len(data) < COUNT * SLOT_BYTES:
        data += await other.hear()
    assert data[64 : 64 + RECORD_BYTES] == record(0)

    async def left() -> bool:
        return serving_replica.value("chiasm_kv_peers_refused_total", reason="slow") == 1

    await until(left)
    await silent.close()
    await other.close()


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("serving_replica", [{"timeout_seconds": 0.2}], indirect=True)
async def test_one_that_says_nothing_is_left(serving_replica: Service) -> None:
    reader, writer = await asyncio.open_connection(OWN, PORT)
    assert await reader.read() == b""
    writer.close()
    assert serving_replica.value("chiasm_kv_peers_refused_total", reason="silent") == 1


@pytest.mark.usefixtures("hasty")
async def test_whoever_is_given_more_time_to_ask_is_waited_for(serving_replica: Service) -> None:
    reader, writer = await asyncio.open_connection(OWN, PORT)
    await asyncio.sleep(0.6)
    nonce = bytes(wire.NONCE_BYTES)
    writer.write(wire.encode_hello(nonce))
    assert len(await reader.readexactly(wire.PROOF_BYTES)) == wire.PROOF_BYTES
    writer.close()


async def test_requests_are_answered_between_the_pieces_of_an_answer(
    serving_replica: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many read at once, only one piece is made in a turn of the event loop."""
    monkeypatch.setattr(wire, "PIECE_BYTES", 256)
    memory, made = memory_of(serving_replica), []
    piece, turn = memory.arena.piece, 0

    def noted(places: tuple[Place, ...], size: int, start: int, end: int) -> Parts:
        made.append(turn)
        return piece(places, size, start, end)

    monkeypatch.setattr(memory.arena, "piece", noted)

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    lines = [await connect() for _ in range(5)]
    for line in lines:
        line.ask_for(*await line.places(COUNT))

    async def take(line: Line) -> None:
        num_bytes = 0
        while num_bytes < COUNT * SLOT_BYTES:
            num_bytes += len(await line.hear())

    await asyncio.gather(*map(take, lines))
    counting.cancel()
    for line in lines:
        await line.close()
    assert len(made) == 5 * -(-COUNT * SLOT_BYTES // 256)
    assert len(set(made)) == len(made)
