"""Payloads in plain memory, and whole records as an honest writer makes them."""

from __future__ import annotations

from typing import Any

from chiasm_contract.block_record import (
    Header,
    Modality,
    RecordKind,
    align_up,
    encode_header,
    encode_trailer,
)
from chiasm_contract.block_wire import Welcome
from chiasm_worker.tiers.link import Namespace
from chiasm_worker.tiers.staging import Staging
from xxhash import xxh3_64_intdigest

SCOPE_FP = "a" * 64
NAMESPACE = Namespace(3, "c" * 64, "b" * 64, {"compute.x": 1}, 128)


class PlainMemory:
    """Blocks as bytes."""

    def __init__(self, num_blocks: int, payload_bytes: int = 128) -> None:
        self.blocks = [bytearray(payload_bytes) for _ in range(num_blocks)]

    def write_payload(self, block_id: int, data: memoryview) -> memoryview:
        self.blocks[block_id][:] = data
        return memoryview(self.blocks[block_id])

    def read_payload(self, block_id: int, into: memoryview, *, is_kv: bool) -> None:
        into[:] = self.blocks[block_id]


def record(key: bytes, payload: bytes, **changes: Any) -> bytearray:
    """The record of `payload` under `key`; `changes` are lies of its header."""
    header = Header(**{
        "kind": RecordKind.TEXT_KV,
        "modality": Modality.TEXT,
        "num_tokens": 4,
        "payload_bytes": len(payload),
        "generation": 5,
        "checksum": xxh3_64_intdigest(payload),
        "repr_fp": bytes.fromhex(NAMESPACE.repr_fp),
        "block_key": key,
        "scope": bytes.fromhex(SCOPE_FP)[:16],
        **changes,
    })  # fmt: skip
    padded = payload.ljust(align_up(len(payload)), b"\0")
    return bytearray(encode_header(header) + padded + encode_trailer(header))


def staging(path: Any, num_read: int = 8, num_write: int = 8, payload_bytes: int = 128) -> Staging:
    """Slots in a file at `path`."""
    slot_bytes = len(record(b"k" * 32, bytes(payload_bytes)))
    path.write_bytes(bytes((num_read + num_write) * slot_bytes))
    welcome = Welcome(
        staging_path=str(path),
        slot_bytes=slot_bytes,
        num_read_slots=num_read,
        num_write_slots=num_write,
    )
    return Staging(welcome, payload_bytes)
