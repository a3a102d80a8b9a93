"""A sidecar's block service in a process of its own, one service for each tier; can be held up.

It is told what to do by lines of JSON: hold answers back, let them go, put bytes into its memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import uvloop
from chiasm_contract.block_guard import USE
from chiasm_contract.block_record import Header, RecordKind
from chiasm_contract.tiers import BlockTiers
from chiasm_sidecar.kv import assembly
from chiasm_sidecar.kv.namespaces import Namespace, Release
from chiasm_sidecar.kv.store import BlockStore
from chiasm_sidecar.metrics import Metrics

from faults.blocks import PAYLOAD_BYTES, report, wanted

TIERS = ("host", "disk", "valkey")
INCARNATION = "bench"


class Unguarded(BlockStore):
    """Hands out whatever lies there."""

    def _judge(self, op: Any, place: Any, namespace: Any, keys: Any, records: Any) -> Any:
        return [USE] * len(records)


def namespace() -> Namespace:
    """Where the wanted blocks lie."""
    said = report(INCARNATION)
    release = Release(said.compute_fp, said.repr_fp, PAYLOAD_BYTES, said.fields)
    return release.namespace(bytes.fromhex(wanted(0).scope_fp))


def settings(folder: Path, tier: str, valkey_port: int, key_prefix: str) -> BlockTiers:
    given: dict[str, Any] = {
        "host": {"host_bytes": 2**26},
        "disk": {"disk": {"path": folder / "blocks", "max_bytes": 2**26}},
        "valkey": {
            "valkey": {
                "host": "127.0.0.1", "port": valkey_port, "key_prefix": key_prefix,
                "timeout_seconds": 10,
            }
        },
    }  # fmt: skip
    return BlockTiers(
        socket_path=folder / f"{tier}.sock",
        staging_path=folder / f"{tier}.staging",
        staging_bytes=2**20,
        fetch_timeout_seconds=20,
        **given[tier],
    )


async def serve(folder: Path, arm: str, valkey_port: int) -> None:
    """Until standard input ends."""
    if arm == "unguarded":
        vars(assembly)["BlockStore"] = Unguarded
    free = asyncio.Event()
    free.set()
    said = report(INCARNATION)
    stores: dict[str, BlockStore] = {}
    async with contextlib.AsyncExitStack() as stack:
        for tier in TIERS:
            service = assembly.block_service(
                settings(folder, tier, valkey_port, arm), lambda: said, Metrics("bench"), print
            )
            stores[tier] = await stack.enter_async_context(service)
            _hold_back(stores[tier], free)
        reader = asyncio.StreamReader(limit=2**24)
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        print("listening", flush=True)
        while line := await reader.readline():
            order = json.loads(line)
            if order["do"] == "hold":
                free.clear()
            elif order["do"] == "free":
                free.set()
            else:
                key, record = bytes.fromhex(order["key"]), bytes.fromhex(order["record"])
                host = stores["host"].levels[0].tier
                await host.drop(namespace(), key)
                place = Header(RecordKind.MEDIA_KV, 0, 0, 0, 0, bytes(32), key, bytes(16))
                await host.put(namespace(), place, record)
            print("done", flush=True)


def _hold_back(store: BlockStore, free: asyncio.Event) -> None:
    read = store.read

    async def held(*arguments: Any) -> Any:
        await free.wait()
        return await read(*arguments)

    vars(store)["read"] = held


class Sidecar:
    """The process."""

    def __init__(self, folder: Path, arm: str, valkey_port: int) -> None:
        self.folder = folder
        self._command = [sys.executable, str(Path(__file__).parent.parent / "guard_faults.py")]
        self._command += ["--serve", str(folder), "--arm", arm, "--valkey", str(valkey_port)]

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._heard("listening")

    def tell(self, do: str, **words: str) -> None:
        """Give an order and wait until it is done."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **words}).encode() + b"\n")
        self._process.stdin.flush()
        self._heard("done")

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self._process.kill()
        self._process.communicate()

    def restart(self) -> None:
        self.kill()
        self.start()

    def _heard(self, word: str) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != word.encode():
            self._process.kill()
            raise RuntimeError(f"the sidecar failed: {self._process.communicate()[1].decode()}")


def run(folder: Path, arm: str, valkey_port: int) -> None:
    """The process's own side."""
    uvloop.run(serve(folder, arm, valkey_port))
