"""Whole records judged hundreds at a time, at a tenth of what one by one costs.

The verdicts are those of `judge_record`, record by record, and a property test says so. But nearly
always all records are right, and that shows at once: a table of right headers, in which what may
differ between them is taken from those that were read, column by column, is the table of those that
were read. Readings: bench/guard_cost.py.

The crc32 of several headers together depends only on the crc32 and the length of each, and a header
that ends with its own crc32 has always the same one. So right headers together have the crc32 of
any other right ones. Damage in one always shows, in several as surely as it would in each alone.

Only a batch that is not right as a whole is looked at record by record.

Must not know: how checksums are computed, where records lie, files, sockets, clocks.
"""

from __future__ import annotations

import functools
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from chiasm_contract.block_guard import USE, Expected, Outcome, Verdict, judge, judge_content
from chiasm_contract.block_record import (
    FINGERPRINT_BYTES,
    HEADER_BYTES,
    TRAILER_BYTES,
    Header,
    MalformedRecord,
    Modality,
    RecordKind,
    encode_header,
    encode_trailer,
    parse_header,
    parse_trailer,
    record_bytes,
)


@dataclass(frozen=True, slots=True)
class ExpectedShape:
    """What all records of one request have in common."""

    repr_fp: bytes
    scope: bytes
    payload_bytes: int

    def of(self, key: bytes) -> Expected:
        """What is expected of the record under one key, whoever wrote it."""
        return Expected(self.repr_fp, self.scope, key, self.payload_bytes)


def judge_record(expected: Expected, record: bytes, checksum: int) -> Verdict:
    """The verdict on one whole record; `checksum` is xxh3-64 of where its payload must be."""
    try:
        header = parse_header(record)
        verdict = judge(expected, header)
        if verdict.outcome is not Outcome.USE:
            return verdict
        if len(record) != record_bytes(header.payload_bytes):
            return Verdict(Outcome.MISS, "short")
        return judge_content(header, parse_trailer(record[-TRAILER_BYTES:]), checksum)
    except MalformedRecord as error:
        return Verdict(Outcome.MISS, error.reason)


def judge_records(
    shape: ExpectedShape, keys: Sequence[bytes], records: Sequence[bytes], checksums: Sequence[int]
) -> list[Verdict]:
    """One verdict for each record, which lies under the key of the same place."""
    if not records:
        return []
    if _all_right(shape, keys, records, checksums):
        return [USE] * len(records)
    return [
        judge_record(shape.of(key), record, checksum)
        for key, record, checksum in zip(keys, records, checksums, strict=True)
    ]


def _all_right(
    shape: ExpectedShape, keys: Sequence[bytes], records: Sequence[bytes], checksums: Sequence[int]
) -> bool:
    count = len(records)
    if list(map(len, records)).count(record_bytes(shape.payload_bytes)) != count:
        return False
    heads = b"".join([record[:HEADER_BYTES] for record in records])
    tails = b"".join([record[-TRAILER_BYTES:] for record in records])
    if zlib.crc32(heads) != _crc32_of_right(count):
        return False
    if heads[_KIND::HEADER_BYTES].translate(None, _KINDS):
        return False
    if heads[_MODALITY::HEADER_BYTES].translate(None, _MODALITIES):
        return False
    plain = Header(
        RecordKind.TEXT_KV,
        Modality.TEXT,
        0,
        shape.payload_bytes,
        0,
        0,
        shape.repr_fp,
        keys[0],
        shape.scope,
    )
    right_heads = bytearray(encode_header(plain) * count)
    right_tails = bytearray(encode_trailer(plain) * count)
    seen, right = _Columns(heads, HEADER_BYTES), _Columns(right_heads, HEADER_BYTES)
    ends, wanted = _Columns(right_tails, TRAILER_BYTES), _Columns(b"".join(keys), FINGERPRINT_BYTES)
    right.one(_KIND)[:] = seen.one(_KIND)
    right.one(_MODALITY)[:] = seen.one(_MODALITY)
    right.four(_NUM_TOKENS)[:] = seen.four(_NUM_TOKENS)
    right.four(_CRC)[:] = seen.four(_CRC)
    for at in range(0, FINGERPRINT_BYTES, 8):
        right.eight(_BLOCK_KEY + at)[:] = wanted.eight(at)
    right.eight(_GENERATION)[:] = ends.eight(0)[:] = seen.eight(_GENERATION)
    right.eight(_CHECKSUM)[:] = ends.eight(8)[:] = memoryview(array("Q", checksums))
    return right_heads == heads and right_tails == tails


@functools.lru_cache(maxsize=1024)
def _crc32_of_right(count: int) -> int:
    """That of any so many right headers together."""
    header = Header(RecordKind.TEXT_KV, Modality.TEXT, 0, 0, 0, 0, bytes(32), bytes(32), bytes(16))
    return zlib.crc32(encode_header(header) * count)


class _Columns:
    """Equal rows back to back, of which all values at one place can be read and set at once."""

    def __init__(self, data: bytes | bytearray, row_bytes: int) -> None:
        self._ones = memoryview(data)
        self._fours, self._eights = self._ones.cast("I"), self._ones.cast("Q")
        self._row_bytes = row_bytes

    def one(self, at: int) -> memoryview:
        """The byte at that place of each row."""
        return self._ones[at :: self._row_bytes]

    def four(self, at: int) -> memoryview:
        """The four bytes at that place of each row."""
        return self._fours[at // 4 :: self._row_bytes // 4]

    def eight(self, at: int) -> memoryview:
        """The eight bytes at that place of each row."""
        return self._eights[at // 8 :: self._row_bytes // 8]


# Offsets in a header; block_record.py draws it.
_KIND = 6
_MODALITY = 7
_NUM_TOKENS = 8
_GENERATION = 16
_CHECKSUM = 24
_BLOCK_KEY = 64
_CRC = 124
_KINDS = bytes(RecordKind)
_MODALITIES = bytes(Modality)
