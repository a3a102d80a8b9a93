"""Records as bytes in an answer, for who asked: cut short, slow, too long, altered, torn."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from chiasm_contract.block_guard import USE, Outcome, Verdict
from chiasm_contract.block_record import parse_header
from chiasm_sidecar.kv.peers import wire
from chiasm_sidecar.kv.peers.serving import read_frame
from chiasm_sidecar.kv.tiers.arena import ArenaTier, Place, Region, slot_bytes
from chiasm_sidecar.kv.tiers.base import TierFailed

from tests.sidecar.conftest import until
from tests.sidecar.kv.conftest import (
    NAMESPACE,
    RECORD_BYTES,
    keys,
    record,
)
from tests.sidecar.kv.peers.conftest import Asker, StartAsker
from tests.sidecar.kv.peers.replica import PORT, SECRET

ADDRESS = "127.0.0.2"
SLOT_BYTES = slot_bytes(RECORD_BYTES)
COUNT = 4


@pytest.fixture
def transport() -> str:
    return "stream"


Send = Callable[[bytes | bytearray], Awaitable[None]]
Answer = Callable[[Send, "Scripted"], Awaitable[None]]


@dataclass
class Scripted:
    """A replica that says where its records lie, and answers a READ as it is told."""

    memory: bytes
    places: list[Place]
    answer: Answer
    asked: list[wire.Kind] = field(default_factory=list)
    going_on: asyncio.Event = field(default_factory=asyncio.Event)
    lines: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.lines.append(writer)
        theirs = wire.decode_hello(await reader.readexactly(wire.HELLO_BYTES))
        ours = secrets.token_bytes(wire.NONCE_BYTES)
        writer.write(wire.encode_proof(SECRET, theirs, ours))
        self.channel = wire.Channel(SECRET, theirs, ours, asker=False)

        async def send(piece: bytes | bytearray) -> None:
            writer.write(self.channel.seal(wire.Kind.PIECE, bytes(piece)))
            await writer.drain()

        self.writer = writer
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, said = self.channel.open(await read_frame(reader))
                body = bytes(said)
                self.asked.append(kind)
                if kind is wire.Kind.DESCRIBE:
                    description = wire.Description("scripted", 0, len(self.memory), b"")
                    body = wire.encode_description(description)
                    writer.write(self.channel.seal(wire.Kind.REGION, body))
                elif kind is wire.Kind.LOOKUP:
                    places = self.places[: len(wire.decode_lookup(body).keys)]
                    writer.write(self.channel.seal(wire.Kind.PLACES, wire.encode_places(places)))
                else:
                    assert list(wire.decode_read(body, 2**20).places) == self.places
                    await self.answer(send, self)
        writer.close()

    async def stop(self) -> None:
        self.going_on.set()
        for writer in self.lines:
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


StartScripted = Callable[[Answer], Awaitable[Scripted]]


@pytest.fixture
async def start_scripted() -> AsyncIterator[StartScripted]:
    async with contextlib.AsyncExitStack() as stack:

        async def start(answer: Answer) -> Scripted:
            arena, places = await filled()
            scripted = Scripted(bytes(arena.arena.region.view), places, answer)
            server = await asyncio.start_server(
                scripted.serve, ADDRESS, PORT, reuse_address=True, limit=wire.MAX_FRAME_BYTES
            )
            stack.callback(server.close)
            stack.push_async_callback(scripted.stop)
            return scripted

        yield start


async def filled() -> tuple[ArenaTier, list[Place]]:
    arena = ArenaTier(Region(COUNT * SLOT_BYTES), 1.0)
    for number in range(COUNT):
        data = record(number)
        assert await arena.put(NAMESPACE, parse_header(data), data) == USE
    found = arena.find(NAMESPACE.name, RECORD_BYTES, keys(COUNT))
    return arena, [place for place in found if place]


async def read(asker: Asker) -> list[bytes | None]:
    found = await asker.peer.look_up(wire.Lookup(NAMESPACE.name, RECORD_BYTES, keys(COUNT)))
    places = [place for place in found if place]
    assert len(places) == COUNT
    return await asker.peer.read(places, RECORD_BYTES)


async def whole(send: Send, scripted: Scripted) -> None:
    for place in scripted.places:
        await send(scripted.memory[place.offset : place.offset + SLOT_BYTES])


async def test_an_answer_may_be_cut_anywhere(
    start_scripted: StartScripted, start_asker: StartAsker
) -> None:
    async def crumbs(send: Send, scripted: Scripted) -> None:
        slots = [scripted.memory[p.offset : p.offset + SLOT_BYTES] for p in scripted.places]
        data = b"".join(slots)
        for start in range(0, len(data), 37):
            await send(data[start : start + 37])

    await start_scripted(crumbs)
    asker = await start_asker(ADDRESS)
    assert await read(asker) == [record(number) for number in range(COUNT)]
    assert asker.num_free_berths == 8


async def test_a_replica_killed_in_mid_answer_is_a_failure_and_asked_anew(
    start_scripted: StartScripted, start_asker: StartAsker
) -> None:
    async def cut_off(send: Send, scripted: Scripted) -> None:
        await send(scripted.memory[: SLOT_BYTES + 100])
        scripted.writer.transport.abort()

    scripted = await start_scripted(cut_off)
    asker = await start_asker(ADDRESS)
    with pytest.raises(TierFailed, match=r"IncompleteRead|Reset"):
        await read(asker)
    assert asker.num_free_berths == 8
    assert not asker.peer.connected
    scripted.answer = whole
    assert await read(asker) == [record(number) for number in range(COUNT)]


async def test_a_replica_that_is_slow_in_mid_answer_is_given_up_and_its_rest_is_nobody_s(
    start_scripted: StartScripted, start_asker: StartAsker
) -> None:
    async def slow(send: Send, scripted: Scripted) -> None:
        await send(scripted.memory[:SLOT_BYTES])
        await scripted.going_on.wait()
        with contextlib.suppress(ConnectionError):
            await send(bytes(3 * SLOT_BYTES))

    scripted = await start_scripted(slow)
    asker = await start_asker(ADDRESS, timeout_seconds=0.3)
    with pytest.raises(TierFailed, match="TimeoutError"):
        await read(asker)
    assert asker.num_free_berths == 8, "nothing comes into a place that is given back"
    scripted.answer = whole
    scripted.going_on.set()
    assert await read(asker) == [record(number) for number in range(COUNT)]


async def too_long(send: Send, scripted: Scripted) -> None:
    await send(bytes(SLOT_BYTES))
    await send(bytes(COUNT * SLOT_BYTES))


async def empty(send: Send, scripted: Scripted) -> None:
    await send(b"")


async def unframed(send: Send, scripted: Scripted) -> None:
    scripted.writer.write((2**31).to_bytes(4, "little") + bytes(2**16))


async def altered(send: Send, scripted: Scripted) -> None:
    frame = bytearray(scripted.channel.seal(wire.Kind.PIECE, scripted.memory))
    frame[2000] ^= 1
    scripted.writer.write(frame)


async def injected(send: Send, scripted: Scripted) -> None:
    stranger = wire.Channel(b"guess" * 8, bytes(32), bytes(32), asker=False)
    scripted.writer.write(stranger.seal(wire.Kind.PIECE, scripted.memory))


async def something_else(send: Send, scripted: Scripted) -> None:
    scripted.writer.write(scripted.channel.seal(wire.Kind.PLACES, bytes(16)))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (too_long, f"a piece has {COUNT * SLOT_BYTES} bytes, and {(COUNT - 1) * SLOT_BYTES} were"),
        (empty, "a piece has 0 bytes"),
        (unframed, "a frame has 17 to 1048576 bytes, not 2147483648"),
        (altered, "a frame's tag is wrong"),
        (injected, "a frame's tag is wrong"),
        (something_else, "PLACES is no answer to READ"),
    ],
)
async def test_what_was_not_asked_for_ends_the_connection(
    start_scripted: StartScripted, start_asker: StartAsker, answer: Answer, words: str
) -> None:
    scripted = await start_scripted(answer)
    asker = await start_asker(ADDRESS)
    with pytest.raises(TierFailed, match=words):
        await read(asker)
    assert not asker.peer.connected
    assert asker.num_free_berths == 8
    scripted.answer = whole
    assert await read(asker) == [record(number) for number in range(COUNT)]


async def test_who_waits_for_a_turn_and_gives_up_cuts_off_nobody_else(
    start_scripted: StartScripted, start_asker: StartAsker
) -> None:
    async def held(send: Send, scripted: Scripted) -> None:
        await scripted.going_on.wait()
        await whole(send, scripted)

    scripted = await start_scripted(held)
    asker = await start_asker(ADDRESS)
    first = asyncio.create_task(read(asker))

    async def under_way() -> bool:
        return wire.Kind.READ in scripted.asked

    await until(under_way)
    second = asyncio.create_task(read(asker))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    scripted.going_on.set()
    assert await first == [record(number) for number in range(COUNT)]
    assert scripted.asked.count(wire.Kind.DESCRIBE) == 1


async def test_a_record_that_does_not_fit_into_the_landing_place_is_not_asked_for(
    start_scripted: StartScripted, start_asker: StartAsker
) -> None:
    await start_scripted(whole)
    asker = await start_asker(ADDRESS, landing_bytes=2**20)
    with pytest.raises(TierFailed, match="no room to read a slot of 200128 bytes"):
        await asker.peer.read([Place(0, 1)], 200_000)


async def test_a_record_rewritten_while_it_is_sent_is_judged(
    start_scripted: StartScripted, start_asker: StartAsker
) -> None:
    """Its generation says nothing of it: the guard does."""

    async def torn(send: Send, scripted: Scripted) -> None:
        slots = [
            bytearray(scripted.memory[place.offset : place.offset + SLOT_BYTES])
            for place in scripted.places
        ]
        await send(slots[0] + slots[1][:700])
        slots[1][64:-64] = record(1, generation=7)
        await send(slots[1][700:] + slots[2] + slots[3])

    await start_scripted(torn)
    asker = await start_asker(ADDRESS)
    store = asker.service.store
    reading = await store.read(NAMESPACE, keys(COUNT), store.clock() + 20, 20)
    assert reading.verdicts == [USE, Verdict(Outcome.QUARANTINE, "torn"), USE, USE]
    assert reading.records[1] is None
