"""A small block service on a real socket: honest unless told how to lie, mortal on demand.

It keeps records in a dictionary and judges what it stores and hands out by the contract's own
functions. `corrupt` changes a record on its way into a read slot; `faults` are the moments at which
it dies or says what it may not. What the worker may not do (give a slot back twice, send another
kind) ends up in `complaints`.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from chiasm_contract.block_guard import ABSENT, USE, Expected, Outcome, Verdict, judge_header
from chiasm_contract.block_record import SCOPE_BYTES, parse_header, record_bytes
from chiasm_contract.block_wire import (
    Fetch,
    Found,
    Group,
    GroupKind,
    Hello,
    Kind,
    Store,
    Stored,
    Tier,
    Welcome,
    decode_fetch,
    decode_slots,
    decode_store,
    encode_found,
    encode_stored,
    frame,
    frame_length,
    split_frame,
)

BUSY = Verdict(Outcome.MISS, "busy")


class Service:
    """The sidecar's side, as far as a worker can see it."""

    def __init__(self, folder: Path, num_read_slots: int = 64, num_write_slots: int = 64) -> None:
        self.socket_path = folder / "kv.sock"
        self._folder = folder
        self._num_read, self._num_write = num_read_slots, num_write_slots
        self.records: dict[bytes, bytes] = {}
        self.corrupt: Callable[[bytes, bytes], bytes] = lambda key, record: record
        self.faults: set[str] = set()
        self.hellos: list[Hello] = []
        self.fetches: list[Fetch] = []
        self.stores: list[Store] = []
        self.complaints: list[str] = []
        self.slots_out: set[int] = set()
        self.wait_before_found: asyncio.Event | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._accept, self.socket_path)

    async def stop(self) -> None:
        """As a killed process ends: connections break, the socket's file stays."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await _Session(self, reader, writer).run()
        except (EOFError, OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    def map_staging(self, payload_bytes: int) -> tuple[Welcome, mmap.mmap]:
        """A file of its own for each connection: an older mapping stays what it was."""
        slot_bytes = record_bytes(payload_bytes)
        path = self._folder / f"staging-{uuid.uuid4().hex}"
        num_slots = self._num_read + self._num_write
        path.write_bytes(bytes(num_slots * slot_bytes))
        with path.open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0)
        welcome = Welcome(
            staging_path=str(path),
            slot_bytes=slot_bytes,
            num_read_slots=self._num_read,
            num_write_slots=self._num_write,
        )
        return welcome, mapped


class _Session:
    """One connection."""

    def __init__(
        self, service: Service, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._service = service
        self._reader = reader
        self._writer = writer

    async def run(self) -> None:
        service = self._service
        kind, _, body = await self._read()
        assert kind is Kind.HELLO
        self._hello = Hello.model_validate_json(bytes(body))
        service.hellos.append(self._hello)
        if "die at hello" in service.faults:
            return
        if "refuse" in service.faults:
            self._writer.write(frame(Kind.REFUSED, 0, b"not the expected identity"))
            return
        self._welcome, self._slots = service.map_staging(self._hello.payload_bytes)
        self._free = list(range(self._welcome.num_read_slots))
        service.slots_out = set()
        welcome = self._welcome
        if "small slots" in service.faults:
            welcome = welcome.model_copy(update={"slot_bytes": 64})
        if "no file" in service.faults:
            welcome = welcome.model_copy(update={"staging_path": "/nonexistent/file"})
        if "short file" in service.faults:
            welcome = welcome.model_copy(update={"num_write_slots": 10**6})
        self._writer.write(frame(Kind.WELCOME, 0, welcome.model_dump_json().encode()))
        while True:
            kind, call, body = await self._read()
            match kind:
                case Kind.FETCH:
                    if not await self._fetch(call, decode_fetch(body)):
                        return
                case Kind.RELEASE:
                    self._release(decode_slots(body))
                case Kind.STORE:
                    if "die at store" in service.faults:
                        return
                    self._store(call, body)
                case _:
                    service.complaints.append(f"The worker sent {kind.name}.")

    async def _read(self) -> tuple[Kind, int, memoryview]:
        length = frame_length(await self._reader.readexactly(4))
        return split_frame(await self._reader.readexactly(length))

    async def _fetch(self, call: int, fetch: Fetch) -> bool:
        service = self._service
        service.fetches.append(fetch)
        if service.wait_before_found is not None:
            await service.wait_before_found.wait()
        if "die at fetch" in service.faults:
            return False
        if "refuse to answer" in service.faults:
            self._writer.write(frame(Kind.REFUSED, call, b"older generation"))
            return True
        body = encode_found(self._found(fetch))
        answer = frame(Kind.FOUND, call, body)
        lies = {
            "garbage": b"\x09\x00\x00\x00garbage!!",
            "endless frame": b"\xff\xff\xff\xff",
            "unknown call": frame(Kind.FOUND, call + 7, body),
            "too few answers": frame(Kind.FOUND, call, encode_found([])),
            "no such slot": frame(
                Kind.FOUND, call, encode_found([Found(USE, Tier.HOST, 10**6)] * _num_keys(fetch))
            ),
            "one slot for all": frame(
                Kind.FOUND, call, encode_found([Found(USE, Tier.HOST, 0)] * _num_keys(fetch))
            ),
            "die in the middle of a frame": answer[: len(answer) // 2],
        }
        told = next((lies[fault] for fault in lies if fault in service.faults), answer)
        self._writer.write(told)
        return "die in the middle of a frame" not in service.faults

    def _found(self, fetch: Fetch) -> list[Found]:
        found: list[Found] = []
        num_chain = 0
        for number, group in enumerate(fetch.groups):
            if group.unless_chain and num_chain >= group.unless_chain:
                found += [Found(ABSENT)] * len(group.keys)
                continue
            answers = self._group(group, fetch.scope_fp)
            if number == 0:
                num_chain = sum(each.verdict is USE for each in answers)
            found += answers
        return found

    def _group(self, group: Group, scope_fp: bytes) -> list[Found]:
        usable: list[bytes] = []
        for key in group.keys:
            if key not in self._service.records:
                break
            usable.append(key)
        if group.kind is GroupKind.ENTRY and len(usable) < len(group.keys):
            usable = []
        if len(usable) > len(self._free):
            usable = usable[: len(self._free)] if group.kind is GroupKind.CHAIN else []
        answers = [self._hand_out(key, scope_fp) for key in usable]
        return answers + [Found(ABSENT)] * (len(group.keys) - len(answers))

    def _hand_out(self, key: bytes, scope_fp: bytes) -> Found:
        slot = self._free.pop()
        record = self._service.corrupt(key, self._service.records[key])
        at = slot * self._welcome.slot_bytes
        self._slots[at : at + len(record)] = record
        self._service.slots_out.add(slot)
        return Found(USE, Tier.HOST, slot)

    def _release(self, slots: tuple[int, ...]) -> None:
        for slot in slots:
            if slot not in self._service.slots_out:
                self._service.complaints.append(f"Slot {slot} was given back but is not out.")
            self._service.slots_out.discard(slot)
            self._free.append(slot)

    def _store(self, call: int, body: memoryview) -> None:
        store = decode_store(body)
        self._service.stores.append(store)
        stored = []
        for slot in store.slots:
            at = slot * self._welcome.slot_bytes
            record = bytes(self._slots[at : at + self._welcome.slot_bytes])
            verdict = BUSY if "keep nothing" in self._service.faults else USE
            header = parse_header(record)
            expected = Expected(
                bytes.fromhex(self._hello.repr_fp),
                store.scope_fp[:SCOPE_BYTES],
                header.block_key,
                self._hello.payload_bytes,
            )
            if judge_header(expected, record) is not USE:
                self._service.complaints.append(f"Slot {slot} holds another record than said.")
            if verdict is USE:
                self._service.records.setdefault(header.block_key, record)
            stored.append(Stored(slot, verdict))
        if "answer for other slots" in self._service.faults:
            stored = [Stored(each.slot + 1, each.verdict) for each in stored]
        self._writer.write(frame(Kind.STORED, call, encode_stored(stored)))


def _num_keys(fetch: Fetch) -> int:
    return sum(len(group.keys) for group in fetch.groups)


@asynccontextmanager
async def serving(service: Service) -> AsyncIterator[Service]:
    """A running service; whatever it has to complain about fails the test."""
    await service.start()
    try:
        yield service
    finally:
        with contextlib.suppress(OSError):
            await service.stop()
        assert not service.complaints
