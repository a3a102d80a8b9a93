"""A replica as a process of its own, and its end of the line to a test.

put FIRST COUNT   records in its memory
reuse OLD NEW     the slot of one record holds another one
spoil KEY OTHER   the slot of a record holds the bytes of another one, its generation unchanged
tear KEY OTHER    the same, but only the first half
scope KEY         the slot of a record holds that of another tenant under the same key
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from chiasm_contract.block_record import parse_header
from chiasm_contract.tiers import BlockTiers
from chiasm_sidecar.kv.assembly import block_service
from chiasm_sidecar.kv.tiers.arena import ArenaTier
from chiasm_sidecar.metrics import Metrics

from tests.sidecar.kv.conftest import IDENTITY, NAMESPACE, key, record

ROOT = Path(__file__).parents[4]
PORT = 19200
SECRET = b"0123456789abcdef0123456789abcdef"


def settings(
    folder: Path, own: str, others: tuple[str, ...], transport: str = "stream", **changes: Any
) -> dict[str, Any]:
    """`peers` of a replica with an address of its own on the loopback interface."""
    secret = folder / "secret"
    if not secret.exists():
        secret.write_bytes(SECRET)
    plain = {
        "hosts": others,
        "listen_host": own,
        "port": PORT,
        "transport": transport,
        "secret_path": secret,
        "timeout_seconds": 20,
    }
    of_nixl = {"data_port": 0, "interface": "lo"} if transport == "nixl" else {}
    return {**plain, **of_nixl, **changes}


class Replica:
    """The process, seen from a test."""

    def __init__(self, folder: Path, address: str, transport: str) -> None:
        folder.mkdir(exist_ok=True)
        self.address = address
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.sidecar.kv.peers.replica", folder, address, transport],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "ready"

    def say(self, *words: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        assert self._answer() == "done"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        if number is signal.SIGSTOP:
            os.waitpid(self._process.pid, os.WUNTRACED)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(20)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class _Memory:
    def __init__(self, tier: ArenaTier) -> None:
        self._tier = tier

    async def put(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            data = record(number)
            await self._tier.put(NAMESPACE, parse_header(data), data)

    async def reuse(self, old: int, new: int) -> None:
        await self._tier.drop(NAMESPACE, key(old))
        await self.put(new, 1)

    async def spoil(self, number: int, other: int) -> None:
        self._write(number, record(other))

    async def tear(self, number: int, other: int) -> None:
        self._write(number, record(number, generation=other)[: len(record(number)) // 2])

    async def scope(self, number: int) -> None:
        self._write(number, record(number, scope=hashlib.sha256(b"other").digest()[:16]))

    def _write(self, number: int, data: bytes) -> None:
        start = self._tier._places[NAMESPACE.name][key(number)].offset + 64
        self._tier.arena.region.view[start : start + len(data)] = data


def _lacking(faults: tuple[str, ...]) -> None:
    print(*faults, flush=True)


async def main(folder: Path, address: str, transport: str) -> None:
    tiers = BlockTiers.model_validate(
        {
            "socket_path": folder / "kv.sock",
            "staging_path": folder / "kv.staging",
            "staging_bytes": 2**20,
            "host_bytes": 2**20,
            "peers": settings(folder, address, (address,), transport),
        }
    )
    async with block_service(tiers, lambda: IDENTITY, Metrics("demo"), _lacking) as store:
        memory = store.levels[0].tier
        assert isinstance(memory, ArenaTier)
        while not store.levels[1].tier._peers:  # type: ignore[attr-defined]  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            command, *numbers = line.split()
            await getattr(_Memory(memory), command)(*map(int, numbers))
            print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
