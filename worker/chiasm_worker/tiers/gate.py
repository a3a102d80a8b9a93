"""The only way for a record from outside into the pool.

`Gate.take_in` copies a record into a block that nobody can find and judges the copy: first the
header against what this request expects, then ends and checksum over the bytes that arrived (not
over those in the slot, which may change). Only what is judged to be of use becomes a `Judged`, and
only a `Judged` can be made findable: nothing else makes one (tests/worker/tiers/test_gate.py looks
for other ways).

Must not know: sockets, requests, torch.
"""

from __future__ import annotations

from typing import Any, Protocol

from chiasm_contract.block_guard import Expected, Outcome, Verdict, judge, judge_content
from chiasm_contract.block_record import (
    HEADER_BYTES,
    TRAILER_BYTES,
    MalformedRecord,
    parse_header,
    parse_trailer,
)
from chiasm_contract.errors import InvariantError
from xxhash import xxh3_64_intdigest

from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.prefix_cache import BlockContent, MediaBlockContent
from chiasm_worker.kvcache.rebuild_cost import Rebuild

_SEAL: Any = object()


class PayloadMemory(Protocol):
    """Where payloads lie: the arena."""

    def write_payload(self, block_id: int, data: memoryview) -> memoryview:
        """Copy a payload into a block; returns the bytes as they arrived."""
        ...

    def read_payload(self, block_id: int, into: memoryview, *, is_kv: bool) -> None:
        """Copy a block's payload out."""
        ...


class Judged:
    """A block whose bytes came from outside and were judged to be what `block_key` says."""

    __slots__ = ("block_id", "block_key", "slot_gen")

    def __init__(self, seal: object, block_id: int, slot_gen: int, block_key: bytes) -> None:
        if seal is not _SEAL:
            raise TypeError("Only Gate.take_in makes a Judged; a record is used after a verdict.")
        self.block_id = block_id
        self.slot_gen = slot_gen
        self.block_key = block_key


class Gate:
    """Judges records and makes them findable. For the engine's thread."""

    def __init__(self, pool: BlockPool, memory: PayloadMemory) -> None:
        self._pool = pool
        self._memory = memory

    def take_in(
        self, block_id: int, record: memoryview, expected: Expected
    ) -> tuple[Judged | None, Verdict]:
        """Copy a record into a block that the caller holds and nobody can find, and judge it."""
        slot_gen = self._pool.slot_gen(block_id)
        try:
            header = parse_header(bytes(record[:HEADER_BYTES]))
            verdict = judge(expected, header)
            if verdict.outcome is not Outcome.USE:
                return None, verdict
            payload = record[HEADER_BYTES:-TRAILER_BYTES][: header.payload_bytes]
            checksum = xxh3_64_intdigest(self._memory.write_payload(block_id, payload))
            trailer = parse_trailer(bytes(record[-TRAILER_BYTES:]))
        except MalformedRecord as error:
            return None, Verdict(Outcome.MISS, error.reason)
        verdict = judge_content(header, trailer, checksum)
        if verdict.outcome is not Outcome.USE:
            return None, verdict
        return Judged(_SEAL, block_id, slot_gen, header.block_key), verdict

    def make_findable(
        self,
        judged: Judged,
        content: BlockContent | MediaBlockContent,
        rebuild: Rebuild,
        parent_key: bytes | None = None,
    ) -> None:
        """Let a judged block be found as the content for which it was judged.

        The caller holds the block and knows that the content is not findable yet.
        """
        now = self._pool.slot_gen(judged.block_id)
        if judged.block_key != content.key or judged.slot_gen != now:
            raise InvariantError(
                f"Block {judged.block_id} was judged in generation {judged.slot_gen} for "
                f"{judged.block_key.hex()}, but is to be {content.key.hex()} in {now}; bug."
            )
        found = self._pool.commit(judged.block_id, content.key, content, rebuild, parent_key)
        if found != judged.block_id:
            raise InvariantError(f"{content.key.hex()} is findable already; bug.")
