"""The bytes around a cache block, the same in every tier and on every wire.

    | header, 128 B                                                | payload | trailer, 64 B |

    header   magic 4 | schema 2 | kind 1 | modality 1 | num_tokens 4 | payload_bytes 4
             | generation 8 | checksum 8 | repr_fp 32 | block_key 32 | scope 16 | zeros 12 | crc32 4
    trailer  generation 8 | checksum 8 | magic 4 | zeros 44

All little-endian; every part starts on a 64-byte border. `crc32` covers the 124 bytes before it, so
that a header is known to be one before any of its fields is believed; `checksum` is xxh3-64 of the
payload. The trailer repeats the generation and the checksum: a record whose ends differ was read
while it was being written (research on one-sided reads: generations alone let torn reads through,
generation and checksum together let none).

A block is whole of the modality of the media that any of its tokens stand for: text where none
does, mixed where media of several kinds meet in it. It is said for those who count; what a block
may be used for never depends on it.

Must not know: what a payload means, where records lie, how checksums are computed. Pure functions
of their arguments; any bytes at all parse or raise MalformedRecord.
"""

from __future__ import annotations

import enum
import struct
import zlib
from dataclasses import dataclass
from typing import NamedTuple

ALIGNMENT_BYTES = 64
HEADER_BYTES = 128
TRAILER_BYTES = 64
SCHEMA = 2
FINGERPRINT_BYTES = 32
SCOPE_BYTES = 16

_MAGIC = b"CHKV"
_HEADER = struct.Struct("<4sHBBIIQQ32s32s16s12x")
_CRC = struct.Struct("<I")
_TRAILER = struct.Struct("<QQ4s44x")
_ZEROS = slice(112, 124)


MALFORMED_REASONS = ("short", "header_crc", "magic", "schema", "kind", "trailer")


class RecordKind(enum.IntEnum):
    """What a payload holds."""

    TEXT_KV = 1
    MEDIA_KV = 2
    CROSS_KV = 3
    ENCODER_OUTPUT = 4


class Modality(enum.IntEnum):
    """What the tokens of a payload stand for."""

    TEXT = 1
    IMAGE = 2
    VIDEO = 3
    AUDIO = 4
    MIXED = 5


class Holding(NamedTuple):
    """What a record holds, for those who count."""

    kind: RecordKind
    modality: Modality


class MalformedRecord(ValueError):
    """These bytes are no record; `reason` is one of MALFORMED_REASONS."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Header:
    """What a record says of itself.

    Attributes:
        generation: the writer's count of contents of that place; never compared between processes.
        checksum: xxh3-64 of the payload.
        scope: the first 16 bytes of scope_fp.
    """

    kind: RecordKind
    modality: Modality
    num_tokens: int
    payload_bytes: int
    generation: int
    checksum: int
    repr_fp: bytes
    block_key: bytes
    scope: bytes

    @property
    def holding(self) -> Holding:
        """What its payload is."""
        return Holding(self.kind, self.modality)


@dataclass(frozen=True, slots=True)
class Trailer:
    """What stands behind the payload."""

    generation: int
    checksum: int


def encode_header(header: Header) -> bytes:
    """The 128 bytes in front of a payload.

    Raises: ValueError for a digest of another length, struct.error for a number out of range.
    """
    for name, length in (
        ("repr_fp", FINGERPRINT_BYTES), ("block_key", FINGERPRINT_BYTES), ("scope", SCOPE_BYTES),
    ):  # fmt: skip
        if len(getattr(header, name)) != length:
            raise ValueError(f"{name} has {len(getattr(header, name))} bytes; it takes {length}.")
    data = _HEADER.pack(
        _MAGIC,
        SCHEMA,
        header.kind,
        header.modality,
        header.num_tokens,
        header.payload_bytes,
        header.generation,
        header.checksum,
        header.repr_fp,
        header.block_key,
        header.scope,
    )
    return data + _CRC.pack(zlib.crc32(data))


def encode_trailer(header: Header) -> bytes:
    """The 64 bytes behind the payload of a record with this header."""
    return _TRAILER.pack(header.generation, header.checksum, _MAGIC)


def parse_header(data: bytes | memoryview) -> Header:
    """What the first 128 bytes of a record say.

    Raises: MalformedRecord for anything that `encode_header` did not write.
    """
    if len(data) < HEADER_BYTES:
        raise MalformedRecord("short", f"A record's header has 128 bytes, not {len(data)}.")
    (crc,) = _CRC.unpack_from(data, HEADER_BYTES - _CRC.size)
    if crc != zlib.crc32(data[: HEADER_BYTES - _CRC.size]):
        raise MalformedRecord("header_crc", "The header's crc32 is not that of its bytes.")
    magic, schema, kind, modality, tokens, size, generation, checksum, repr_fp, key, scope = (
        _HEADER.unpack_from(data)
    )
    if magic != _MAGIC:
        raise MalformedRecord("magic", "The bytes do not begin like a record.")
    if schema != SCHEMA:
        raise MalformedRecord("schema", f"The record has schema {schema}; this reads {SCHEMA}.")
    if kind not in _KINDS or modality not in _MODALITIES or any(data[_ZEROS]):
        raise MalformedRecord(
            "kind", f"Kind {kind} and modality {modality} are not known in schema {SCHEMA}."
        )
    return Header(
        _KINDS[kind], _MODALITIES[modality], tokens, size, generation, checksum, repr_fp, key, scope
    )


def parse_trailer(data: bytes | memoryview) -> Trailer:
    """What the last 64 bytes of a record say.

    Raises: MalformedRecord for anything that `encode_trailer` did not write.
    """
    if len(data) != TRAILER_BYTES:
        raise MalformedRecord("short", f"A record's trailer has 64 bytes, not {len(data)}.")
    generation, checksum, magic = _TRAILER.unpack(data)
    if magic != _MAGIC or any(data[_TRAILER.size - 44 :]):
        raise MalformedRecord("trailer", "The bytes do not end like a record.")
    return Trailer(generation, checksum)


def kind_of(record: bytes) -> RecordKind:
    """The kind of a record whose header is known to be one."""
    return _KINDS[record[6]]


_KINDS = {int(kind): kind for kind in RecordKind}
_MODALITIES = {int(modality): modality for modality in Modality}


def align_up(num_bytes: int) -> int:
    """Round up to the next multiple of the alignment; align_up(65) == 128."""
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def record_bytes(payload_bytes: int) -> int:
    """Bytes of a whole record whose payload has so many."""
    return HEADER_BYTES + align_up(payload_bytes) + TRAILER_BYTES
