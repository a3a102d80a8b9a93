"""Records in a folder: bounded, found again after a restart.

The ledger is on the event loop, files are touched in threads (files.py). Until the folder has been
read at the start, everything is absent and nothing is taken.

Invariant: what the ledger has, was written whole before or is being written now; what is evicted is
removed before the record that it made room for is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from chiasm_contract.block_guard import USE, Outcome, Verdict, judge_rewrite
from chiasm_contract.block_record import Header
from chiasm_contract.block_wire import Tier as Place
from chiasm_contract.tiers import DiskTier as DiskSettings

from chiasm_sidecar.kv.namespaces import Namespace
from chiasm_sidecar.kv.tiers.base import TierFailed
from chiasm_sidecar.kv.tiers.bounded import Bounded
from chiasm_sidecar.kv.tiers.files import Folder

log = logging.getLogger("chiasm.sidecar.kv")

T = TypeVar("T")

# Enough to keep a disk busy; more would only take memory.
_NUM_THREADS = 4
# What file systems round a file's size up to.
_FILE_UNIT_BYTES = 4096
_CLOSE_TIMEOUT_SECONDS = 5.0
_BUSY = Verdict(Outcome.MISS, "busy")
_RETIRED = Verdict(Outcome.MISS, "retired")


def disk_bytes(num_bytes: int) -> int:
    """What a file of so many bytes takes."""
    return -(-num_bytes // _FILE_UNIT_BYTES) * _FILE_UNIT_BYTES


class DiskTier(Bounded):
    """A folder and the ledger that bounds it."""

    place = Place.DISK

    def __init__(self, settings: DiskSettings, namespace_share: float) -> None:
        super().__init__(settings.max_bytes, namespace_share)
        self._folder = Folder(settings.path)
        self._threads = ThreadPoolExecutor(_NUM_THREADS, "kv-disk")
        self._writing: set[tuple[str, bytes]] = set()
        self._ready = False

    async def open(self) -> None:
        """Claim the folder and note what is in it.

        Raises: TierFailed when the folder cannot be used.
        """
        await self._do(self._folder.open)
        self._retired |= await self._do(self._folder.retired)
        found, num_removed = await self._do(self._folder.scan)
        evicted: list[tuple[str, bytes]] = []
        for each in found:
            if self._ledger.has(each.namespace, each.key):
                continue  # noted by an attempt that failed later
            evicted += (
                self._ledger.add(each.namespace, each.key, disk_bytes(each.num_bytes), each.holding)
                or []
            )
            if not self._ledger.has(each.namespace, each.key):
                evicted.append((each.namespace, each.key))
        await self._do(self._folder.remove, evicted)
        self._ready = True
        counts = {"records": len(self._ledger), "removed": num_removed + len(evicted)}
        log.info("disk tier is open", extra={"fields": counts})

    async def get_many(self, namespace: Namespace, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Read the files that the ledger knows of, several at a time."""
        name = namespace.name
        closed = not self._ready or self._is_retired(name)
        there = [i for i, key in enumerate(keys) if not closed and self._ledger.has(name, key)]
        records: list[bytes | None] = [None] * len(keys)
        parts = [there[part::_NUM_THREADS] for part in range(_NUM_THREADS)]
        read = await asyncio.gather(
            *[self._do(self._read, name, [keys[i] for i in part]) for part in parts if part]
        )
        for part, part_records in zip(filter(None, parts), read, strict=True):
            for i, record in zip(part, part_records, strict=True):
                records[i] = record
                if record is None and (name, keys[i]) not in self._writing:
                    self._ledger.remove(name, keys[i])
        return records

    def _read(self, name: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._folder.read(name, key) for key in keys]

    async def put(self, namespace: Namespace, header: Header, record: bytes) -> Verdict:
        """Write a record, after removing what has to go for it."""
        name, key = namespace.name, header.block_key
        if not self._ready:
            return _BUSY
        if self._is_retired(name):
            return _RETIRED
        if self._ledger.has(name, key):
            stored = await self._do(self._folder.header, name, key)
            if stored is not None:
                verdict = judge_rewrite(stored, header)
                if verdict.outcome is Outcome.QUARANTINE:
                    await self.drop(namespace, key)
                return verdict
        gone = self._ledger.add(name, key, disk_bytes(len(record)), header.holding)
        if gone is None:
            return _BUSY
        self._writing.add((name, key))
        try:
            await self._do(self._folder.remove, gone)
            await self._do(self._folder.write, name, key, record, namespace.manifest)
        except BaseException:
            self._ledger.remove(name, key)
            raise
        finally:
            self._writing.discard((name, key))
        if self._is_retired(name):  # since we asked: the sweep may have passed already
            await self.drop(namespace, key)
            return _RETIRED
        return USE

    async def drop(self, namespace: Namespace, key: bytes) -> None:
        """Remove a file; never called while one is being written under the same key."""
        self._ledger.remove(namespace.name, key)
        await self._do(self._folder.remove, [(namespace.name, key)])

    async def retire(self, prefix: str) -> bool:
        """Write the tombstone."""
        self._retired.add(prefix)
        return await self._do(self._folder.retire, prefix)

    async def sweep(self, prefix: str, max_records: int) -> int:
        """Remove up to so many files, and folders that are empty then."""
        removed = await self._do(self._folder.sweep, prefix, max_records)
        for name, key in removed:
            self._ledger.remove(name, key)
        return len(removed)

    async def close(self) -> None:
        """Let running reads and writes end, and let go of the folder."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT_SECONDS):
                await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        self._folder.close()

    async def _do(self, call: Callable[..., T], *args: object) -> T:
        """Call in a thread.

        Raises: TierFailed for an OSError, without the path in it.
        """
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, functools.partial(call, *args))
        except OSError as error:
            raise TierFailed(f"disk: {type(error).__name__}, errno {error.errno}") from error
