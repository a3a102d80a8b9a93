"""Whole records judged hundreds at a time, at a tenth of what one by one costs.

The verdicts are those of `judge_record`, record by record, and a property test says so. But nearly
always all records are right, and that shows in a few comparisons of all of them at once: one column
of a table of headers with one column of what it must be. Readings: bench/guard_cost.py.

The crc32 of several headers together depends only on the crc32 and the length of each, and a header
that ends with its own crc32 has always the same one. So right headers together have the crc32 of
any other right ones. Damage in one always shows, in several as surely as it would in each alone.

Only a batch that is not right as a whole is looked at record by record.

Must not know: how checksums are computed, where records lie, files, sockets, clocks.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from chiasm_contract.block_guard import USE, Expected, Outcome, Verdict, judge, judge_content
from chiasm_contract.block_record import (
    FINGERPRINT_BYTES,
    HEADER_BYTES,
    TRAILER_BYTES,
    Header,
    MalformedRecord,
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
    plain = Header(
        RecordKind.TEXT_KV, 0, shape.payload_bytes, 0, 0, shape.repr_fp, keys[0], shape.scope
    )
    right = encode_header(plain) * count
    heads = b"".join([record[:HEADER_BYTES] for record in records])
    if zlib.crc32(heads) != zlib.crc32(right):
        return False
    seen, wanted = _Columns(heads, HEADER_BYTES), _Columns(right, HEADER_BYTES)
    ends = _Columns(b"".join([record[-TRAILER_BYTES:] for record in records]), TRAILER_BYTES)
    wanted_ends = _Columns(encode_trailer(plain) * count, TRAILER_BYTES)
    wanted_keys = _Columns(b"".join(keys), FINGERPRINT_BYTES)
    return (
        all(seen.four(at) == wanted.four(at) for at in _MAGIC_SIZE_ZEROS)
        and all(heads[at::HEADER_BYTES] == right[at::HEADER_BYTES] for at in _SCHEMA_FLAGS)
        and not heads[_KIND::HEADER_BYTES].translate(None, _KINDS)
        and all(seen.eight(at) == wanted.eight(at) for at in _REPR_SCOPE_ZEROS)
        and all(seen.eight(64 + at) == wanted_keys.eight(at) for at in range(0, 32, 8))
        and all(seen.eight(16 + at) == ends.eight(at) for at in (0, 8))
        and all(ends.eight(at) == wanted_ends.eight(at) for at in range(16, 64, 8))
        and seen.eight(24).tolist() == list(checksums)
    )


class _Columns:
    """Equal rows back to back, of which all values at one place can be compared at once."""

    def __init__(self, data: bytes, row_bytes: int) -> None:
        self._fours, self._eights = memoryview(data).cast("I"), memoryview(data).cast("Q")
        self._row_bytes = row_bytes

    def four(self, at: int) -> memoryview:
        """The four bytes at that place of each row."""
        return self._fours[at // 4 :: self._row_bytes // 4]

    def eight(self, at: int) -> memoryview:
        """The eight bytes at that place of each row."""
        return self._eights[at // 8 :: self._row_bytes // 8]


# Offsets in a header; block_record.py draws it.
_SCHEMA_FLAGS = (4, 5, 7)
_KIND = 6
_MAGIC_SIZE_ZEROS = (0, 12, 120)
_REPR_SCOPE_ZEROS = (32, 40, 48, 56, 96, 104, 112)
_KINDS = bytes(RecordKind)
