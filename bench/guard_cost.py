"""What it costs a request that every block is checked before it is used.

A process serves the block service as a sidecar does (uvloop, one tier in memory), and a worker's
end of the socket asks for 512 blocks in one call. The same call goes to a service that hands out
whatever lies there, neither judged nor summed, in the same process and in turn. Two engines: fp16
(all blocks float16) and mixed (text float16, media float8, every other block one of media).
Payloads are of 64 bytes, so that carrying them costs next to nothing; what a checksum costs by size
stands apart.

`fp16_*` and `mixed_*` are what it costs to have 512 blocks judged over the socket, transfer
excluded: in each round the round trip of a call that asks for nothing, and the judging of one for
512, timed where it happens. The whole calls, with lookup, slots, copies, small checksums and the
answer, are `*_call_*`, without the guard `*_call_unguarded_*`. `in_process_*` is judging alone in a
tight loop. `echo_*` is 64 bytes there and back between the same two processes, which nothing over a
socket can go below: on a busy machine p99 is mostly waiting for a core.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import mmap
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import uvloop
import xxhash
from chiasm_contract import block_wire as wire
from chiasm_contract.block_batch import judge_record, judge_records
from chiasm_contract.block_guard import USE, Outcome, Verdict
from chiasm_contract.block_record import (
    HEADER_BYTES,
    Header,
    Modality,
    RecordKind,
    encode_header,
    encode_trailer,
)
from chiasm_contract.messages import IdentityReport
from chiasm_contract.tiers import BlockTiers
from chiasm_sidecar.kv.meters import Meters
from chiasm_sidecar.kv.namespaces import Namespace, Registry, Release
from chiasm_sidecar.kv.service import BlockService
from chiasm_sidecar.kv.store import BlockStore
from chiasm_sidecar.kv.tiers.host import HostTier
from chiasm_sidecar.kv.tiers.level import Level
from chiasm_sidecar.metrics import Metrics
from reporting import publish
from stand_ins import identity_of_nobody

NUM_BLOCKS = 512
PAYLOAD_BYTES = 64
SCOPE_FP = bytes(range(32))
MEDIA_DTYPES = {"fp16": "float16", "mixed": "float8_e4m3fn"}
CHECKSUM_KIB = (16, 64, 256, 1024)
PAUSE_SECONDS = 0.001
ECHO, ECHO_BYTES = "echo.sock", 64


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer at once."""
        self._transport.write(data)


class Unguarded(BlockStore):
    """Hands out whatever lies there."""

    def _judge(self, op: Any, place: Any, namespace: Any, keys: Any, records: Any) -> Any:
        return [USE] * len(records)


class Timing(Meters):
    """Keeps how long each batch for a request took to judge."""

    def __init__(self) -> None:
        super().__init__(Metrics("bench"))
        self.milliseconds: list[float] = []

    def checked(self, place: Any, op: Any, verdicts: Any, seconds: float) -> None:
        """Note a batch."""
        if op == "get_kv":
            self.milliseconds.append(seconds * 1e3)
        super().checked(place, op, verdicts, seconds)


STORES: dict[str, type[BlockStore]] = {"call": BlockStore, "call_unguarded": Unguarded}


def namespace(report: IdentityReport) -> Namespace:
    return Release(report.compute_fp, report.repr_fp, PAYLOAD_BYTES, {}).namespace(SCOPE_FP)


def records(report: IdentityReport, mixed: bool) -> tuple[list[bytes], list[bytes]]:
    """Keys and whole records of one request."""
    shape = namespace(report).shape
    keys, whole = [], []
    for number in range(NUM_BLOCKS):
        keys.append(os.urandom(32))
        payload = os.urandom(PAYLOAD_BYTES)
        kind = RecordKind.MEDIA_KV if mixed and number % 2 else RecordKind.TEXT_KV
        checksum = xxhash.xxh3_64_intdigest(payload)
        modality = Modality.IMAGE if kind is RecordKind.MEDIA_KV else Modality.TEXT
        header = Header(
            kind,
            modality,
            16,
            PAYLOAD_BYTES,
            number,
            checksum,
            shape.repr_fp,
            keys[-1],
            shape.scope,
        )
        whole.append(encode_header(header) + payload + encode_trailer(header))
    return keys, whole


def _itself(report: IdentityReport) -> IdentityReport:
    return report


async def serve(folder: Path) -> None:
    """Every kind of service in one process, until it is ended; then prints its own readings."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    timings: dict[str, Timing] = {}
    async with contextlib.AsyncExitStack() as stack:
        for precision, media_dtype in MEDIA_DTYPES.items():
            report = identity_of_nobody("float16", media_dtype)
            for mode, store_type in STORES.items():
                settings = BlockTiers(
                    socket_path=folder / f"{precision}-{mode}.sock",
                    staging_path=folder / f"{precision}-{mode}.staging",
                    staging_bytes=2**20,
                )
                meters = timings[f"{precision}_{mode}"] = Timing()
                levels = [Level(HostTier(2**26, 1.0), meters, time.monotonic)]
                store = store_type(levels, Registry(), meters)
                service = BlockService(settings, store, functools.partial(_itself, report), meters)
                await stack.enter_async_context(service.listening())
        echo = await asyncio.get_running_loop().create_unix_server(Echo, folder / ECHO)
        stack.callback(echo.close)
        print("listening", flush=True)
        await ended.wait()
    print(json.dumps({label: timing.milliseconds for label, timing in timings.items()}))


@dataclass
class Worker:
    """A worker's end of one socket."""

    sock: socket.socket
    fetch: bytes = b""
    nothing: bytes = b""

    def call(self, data: bytes) -> tuple[wire.Kind, memoryview]:
        self.sock.sendall(data)
        length = wire.frame_length(self._read(4))
        kind, _, body = wire.split_frame(self._read(length))
        return kind, body

    def _read(self, count: int) -> bytes:
        data = self.sock.recv(count, socket.MSG_WAITALL)
        if len(data) != count:
            raise RuntimeError("the service closed the connection; its words are above")
        return data

    def timed_ms(self, data: bytes, expected: int) -> float:
        """One FETCH, which must find so many blocks; gives the slots back."""
        begun = time.perf_counter()
        _, body = self.call(data)
        milliseconds = (time.perf_counter() - begun) * 1e3
        slots = [each.slot for each in wire.decode_found(body) if each.slot >= 0]
        if len(slots) != expected:
            raise RuntimeError(f"{len(slots)} blocks found; {expected} are there")
        self.sock.sendall(wire.frame(wire.Kind.RELEASE, 0, wire.encode_slots(slots)))
        return milliseconds


def connected(path: Path, report: IdentityReport, mixed: bool) -> Worker:
    """A worker that has stored one request's blocks."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(path))
    worker = Worker(sock)
    hello = wire.Hello(
        incarnation=report.incarnation,
        engine_gen=1,
        compute_fp=report.compute_fp,
        repr_fp=report.repr_fp,
        fields=report.fields,
        payload_bytes=PAYLOAD_BYTES,
    )
    _, body = worker.call(wire.frame(wire.Kind.HELLO, 0, hello.model_dump_json().encode()))
    welcome = wire.Welcome.model_validate_json(bytes(body))
    keys, whole = records(report, mixed)
    slots = tuple(range(welcome.num_read_slots, welcome.num_read_slots + NUM_BLOCKS))
    with (
        Path(welcome.staging_path).open("r+b") as file,
        mmap.mmap(file.fileno(), 0) as staging,
    ):
        for slot, record in zip(slots, whole, strict=True):
            start = slot * welcome.slot_bytes
            staging[start : start + len(record)] = record
    store = wire.encode_store(wire.Store(1, SCOPE_FP, slots))
    _, body = worker.call(wire.frame(wire.Kind.STORE, 0, store))
    if {each.verdict.outcome for each in wire.decode_stored(body)} != {Outcome.USE}:
        raise RuntimeError("the service did not take all records")
    groups = (wire.Group(wire.GroupKind.CHAIN, tuple(keys)),)
    worker.fetch = wire.frame(
        wire.Kind.FETCH, 1, wire.encode_fetch(wire.Fetch(1, SCOPE_FP, groups))
    )
    worker.nothing = wire.frame(wire.Kind.FETCH, 1, wire.encode_fetch(wire.Fetch(1, SCOPE_FP, ())))
    return worker


def over_the_socket(num_rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each kind of call and of the judging in it, by round."""
    command = [sys.executable, __file__, "--serve"]
    with tempfile.TemporaryDirectory(prefix="chiasm-bench-") as name:
        process = subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "listening\n":
                raise RuntimeError("the services did not start")
            readings = in_turn(Path(name), num_rounds)
        finally:
            process.terminate()
            said, _ = process.communicate(timeout=30)
    for label, milliseconds in json.loads(said).items():
        if milliseconds:
            readings[f"{label}_judging"] = milliseconds[-num_rounds:]
    return readings


def in_turn(folder: Path, num_rounds: int) -> dict[str, list[float]]:
    """All kinds of calls in each round, in a new order each time."""
    ways: list[tuple[str, Worker, bytes, int]] = []
    for precision, media_dtype in MEDIA_DTYPES.items():
        for mode in STORES:
            path = folder / f"{precision}-{mode}.sock"
            worker = connected(
                path, identity_of_nobody("float16", media_dtype), precision == "mixed"
            )
            ways.append((f"{precision}_{mode}", worker, worker.fetch, NUM_BLOCKS))
            if mode == "call":
                ways.append((f"{precision}_nothing", worker, worker.nothing, 0))
    readings: dict[str, list[float]] = {label: [] for label, *_ in ways}
    readings["echo"] = []
    echo = socket.socket(socket.AF_UNIX)
    echo.connect(str(folder / ECHO))
    for number in range(-20, num_rounds):
        random.shuffle(ways)
        for label, worker, data, expected in ways:
            pause()
            milliseconds = worker.timed_ms(data, expected)
            if number >= 0:  # before: warm
                readings[label].append(milliseconds)
        pause()
        begun = time.perf_counter()
        echo.sendall(bytes(ECHO_BYTES))
        echo.recv(ECHO_BYTES, socket.MSG_WAITALL)
        readings["echo"].append((time.perf_counter() - begun) * 1e3)
    echo.close()
    for _, worker, _, _ in ways:
        worker.sock.close()
    return readings


def pause() -> None:
    """Let the service learn from the call before, as a worker does: busy, not asleep."""
    until = time.perf_counter() + PAUSE_SECONDS
    while time.perf_counter() < until:
        pass


def repeated_ms(call: Callable[[], object], count: int) -> list[float]:
    """Milliseconds of each of so many calls."""
    readings = []
    for _ in range(count):
        begun = time.perf_counter()
        call()
        readings.append((time.perf_counter() - begun) * 1e3)
    return readings


def in_process(count: int) -> dict[str, float]:
    """Judging alone, a batch as shipped and one by one, and checksums by size."""
    report = identity_of_nobody("float16", "float16")
    shape = namespace(report).shape
    keys, whole = records(report, mixed=False)
    sums = [
        xxhash.xxh3_64_intdigest(record[HEADER_BYTES : HEADER_BYTES + PAYLOAD_BYTES])
        for record in whole
    ]

    def one_by_one() -> list[Verdict]:
        return [
            judge_record(shape.of(key), record, value)
            for key, record, value in zip(keys, whole, sums, strict=True)
        ]

    def batch() -> list[Verdict]:
        return judge_records(shape, keys, whole, sums)

    if batch() != one_by_one():
        raise RuntimeError("both ways of judging must agree")
    figures = both("in_process", repeated_ms(batch, count))
    figures["in_process_one_by_one_p50_ms"] = quantiles(repeated_ms(one_by_one, count // 20))[0]
    for kib in CHECKSUM_KIB:
        payloads = [os.urandom(kib * 1024) for _ in range(64 * 1024 // kib)]  # beyond the caches
        readings = [
            milliseconds
            for payload in payloads * 3
            for milliseconds in repeated_ms(functools.partial(xxhash.xxh3_64_intdigest, payload), 1)
        ]
        figures[f"checksum_{kib}_kib_p50_ms"] = quantiles(readings)[0]
    return figures


def quantiles(milliseconds: Sequence[float]) -> tuple[float, float]:
    """p50 and p99."""
    p99 = statistics.quantiles(milliseconds, n=100)[98]
    return round(statistics.median(milliseconds), 4), round(p99, 4)


def both(name: str, milliseconds: Sequence[float]) -> dict[str, float]:
    return dict(zip((f"{name}_p50_ms", f"{name}_p99_ms"), quantiles(milliseconds), strict=True))


def figures_of(readings: dict[str, list[float]]) -> dict[str, float]:
    """What is looked for, and everything that it is made of."""
    figures: dict[str, float] = {}
    for precision in MEDIA_DTYPES:
        rounds = zip(
            readings[f"{precision}_nothing"], readings[f"{precision}_call_judging"], strict=True
        )
        figures |= both(precision, [nothing + judging for nothing, judging in rounds])
    for quantile in ("p50", "p99"):
        difference = figures[f"mixed_{quantile}_ms"] - figures[f"fp16_{quantile}_ms"]
        figures[f"mixed_minus_fp16_{quantile}_ms"] = round(difference, 4)
    for label in sorted(readings):
        figures |= both(label, readings[label])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--serve", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=2000)
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve(Path(options.serve)))
        return
    figures: dict[str, Any] = figures_of(over_the_socket(options.rounds))
    figures |= in_process(options.rounds)
    figures |= {
        "num_blocks": NUM_BLOCKS,
        "payload_bytes": PAYLOAD_BYTES,
        "num_rounds": options.rounds,
    }
    publish("guard_cost", figures)


if __name__ == "__main__":
    main()
