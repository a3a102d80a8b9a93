"""A worker's end: its real client and its real gate, or a gate that stands open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chiasm_contract.block_guard import USE, Expected, Outcome, Verdict
from chiasm_contract.block_record import HEADER_BYTES, TRAILER_BYTES
from chiasm_contract.block_wire import Fetch, Group, GroupKind
from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.tiers.client import Backoff, BlockClient
from chiasm_worker.tiers.gate import Gate, Judged
from chiasm_worker.tiers.link import Fetched, Namespace, Offer, TierLink
from chiasm_worker.tiers.staging import Staging

from faults.blocks import PAYLOAD_BYTES, Block, namespace

_LIMIT_SECONDS = 60.0


class Memory:
    """Blocks as bytes; `meanwhile` happens when half of a payload has been copied."""

    def __init__(self, num_blocks: int) -> None:
        self.blocks = [bytearray(PAYLOAD_BYTES) for _ in range(num_blocks)]
        self.meanwhile: Callable[[], None] = lambda: None

    def write_payload(self, block_id: int, data: memoryview) -> memoryview:
        half = len(data) // 2
        self.blocks[block_id][:half] = data[:half]
        self.meanwhile()
        self.blocks[block_id][half:] = data[half:]
        return memoryview(self.blocks[block_id])

    def read_payload(self, block_id: int, into: memoryview, *, is_kv: bool) -> None:
        into[:] = self.blocks[block_id]


class OpenGate(Gate):
    """Takes in whatever comes."""

    def take_in(
        self, block_id: int, record: memoryview, expected: Expected
    ) -> tuple[Judged | None, Verdict]:
        self._memory.write_payload(block_id, record[HEADER_BYTES:-TRAILER_BYTES])
        return None, USE


@dataclass
class End:
    """How asking for one block ended; `payload` is what the engine would read."""

    words: str
    payload: bytes | None = None


@dataclass
class WorkerEnd:
    """One connection to one service."""

    socket_path: Path
    incarnation: str
    is_guarded: bool
    link: TierLink = field(default_factory=TierLink)

    def __post_init__(self) -> None:
        self.namespace: Namespace = namespace(self.incarnation)
        self.memory = Memory(1)
        self.pool = BlockPool(1)
        self.gate = (Gate if self.is_guarded else OpenGate)(self.pool, self.memory)
        self.client = BlockClient(
            self.socket_path, self.incarnation, self.link, Backoff(0.01, 0.05)
        )

    async def connect(self) -> None:
        self.client.start(self.namespace, lambda _: None)
        await self.connected()

    async def connected(self, other_than: Staging | None = None) -> Staging:
        """The slots of the connection; of a newer one than `other_than`."""
        async with asyncio.timeout(_LIMIT_SECONDS):
            while self.link.staging is None or self.link.staging is other_than:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        return self.link.staging

    async def store(self, keys: Sequence[bytes], records: Sequence[bytes]) -> None:
        """Offer what is in `records` and wait until the sidecar has judged it."""
        counters = self.link.counters
        before = counters.stored.total()
        self.send(keys, records)
        async with asyncio.timeout(_LIMIT_SECONDS):
            while counters.stored.total() < before + len(keys):  # noqa: ASYNC110
                await asyncio.sleep(0.002)

    def send(self, keys: Sequence[bytes], records: Sequence[bytes]) -> None:
        """Offer it."""
        staging = self.link.staging
        assert staging is not None
        slots = [slot for _ in keys if (slot := staging.take()) is not None]
        for slot, record in zip(slots, records, strict=True):
            staging.record(slot)[: len(record)] = record
        scope_fp = Block(()).scope_fp
        keys_by_slot = dict(zip(slots, keys, strict=True))
        self.client.store([Offer(self.namespace.engine_gen, scope_fp, staging, keys_by_slot)])

    async def fetch(self, keys: Sequence[bytes]) -> Fetched | None:
        """Each key by itself, in one call."""
        groups = [Group(GroupKind.CHAIN, ()), *(Group(GroupKind.ENTRY, (key,), 0) for key in keys)]
        scope = bytes.fromhex(Block(()).scope_fp)
        fetch = Fetch(self.namespace.engine_gen, scope, tuple(groups))
        return await self.client.fetch(fetch, _LIMIT_SECONDS)

    def take(self, block: Block, fetched: Fetched | None) -> End:
        """Take in what came for a block, as the engine does."""
        if fetched is None:
            return End("unavailable")
        if self.is_guarded and fetched.engine_gen != self.link.engine_gen:
            return End("reject(generation)")
        found = fetched.found[block.key]
        if found.verdict.outcome is not Outcome.USE:
            return End(_words(found.verdict))
        expected = self.namespace.expected(block.scope_fp, block.key)
        record = fetched.staging.record(found.slot)
        _, verdict = self.gate.take_in(0, record, expected)
        if verdict.outcome is not Outcome.USE:
            return End(f"{_words(verdict)} by the worker")
        return End("used", bytes(self.memory.blocks[0]))


def _words(verdict: Verdict) -> str:
    name = verdict.outcome.name.lower()
    return f"{name}({verdict.detail})" if verdict.detail else name
