"""Records survive their encoding; other bytes are told from records; no flipped bit is used."""

from __future__ import annotations

import dataclasses

import pytest
import xxhash
from chiasm_contract.block_batch import ExpectedShape, judge_record, judge_records
from chiasm_contract.block_guard import (
    ABSENT,
    QUARANTINE_REASONS,
    REJECT_FIELDS,
    USE,
    Expected,
    Outcome,
    judge,
    judge_content,
    judge_header,
    judge_rewrite,
)
from chiasm_contract.block_record import (
    ALIGNMENT_BYTES,
    HEADER_BYTES,
    TRAILER_BYTES,
    Header,
    MalformedRecord,
    Modality,
    RecordKind,
    Trailer,
    align_up,
    encode_header,
    encode_trailer,
    parse_header,
    parse_trailer,
    record_bytes,
)
from hypothesis import given
from hypothesis import strategies as st

DIGESTS = st.binary(min_size=32, max_size=32)
WORDS = st.integers(0, 2**64 - 1)
HEADERS = st.builds(
    Header,
    kind=st.sampled_from(RecordKind),
    modality=st.sampled_from(Modality),
    num_tokens=st.integers(0, 2**32 - 1),
    payload_bytes=st.integers(0, 2**32 - 1),
    generation=WORDS,
    checksum=WORDS,
    repr_fp=DIGESTS,
    block_key=DIGESTS,
    scope=st.binary(min_size=16, max_size=16),
)
REPR, SCOPE, KEY = b"r" * 32, b"s" * 16, b"k" * 32
PAYLOAD = bytes(range(150))
SHAPE = ExpectedShape(REPR, SCOPE, len(PAYLOAD))
WHERE_THE_PAYLOAD_IS = slice(HEADER_BYTES, HEADER_BYTES + len(PAYLOAD))


def written(payload: bytes = PAYLOAD, **changes: object) -> bytes:
    """One whole record."""
    header = Header(
        RecordKind.MEDIA_KV, Modality.IMAGE, 16, len(payload), 7, xxhash.xxh3_64_intdigest(payload),
        REPR, KEY, SCOPE,
    )  # fmt: skip
    header = dataclasses.replace(header, **changes)  # type: ignore[arg-type]
    padding = bytes(align_up(len(payload)) - len(payload))
    return encode_header(header) + payload + padding + encode_trailer(header)


def checksum(record: bytes) -> int:
    return xxhash.xxh3_64_intdigest(record[WHERE_THE_PAYLOAD_IS])


@given(HEADERS)
def test_headers_and_trailers_survive(header: Header) -> None:
    data = encode_header(header)
    assert len(data) == HEADER_BYTES
    assert parse_header(data) == header
    assert parse_header(memoryview(data + b"payload")) == header
    trailer = encode_trailer(header)
    assert len(trailer) == TRAILER_BYTES
    assert parse_trailer(trailer) == Trailer(header.generation, header.checksum)


@given(st.binary(max_size=200))
def test_any_bytes_parse_or_are_malformed(data: bytes) -> None:
    for parse in (parse_header, parse_trailer):
        with pytest.raises(MalformedRecord):
            parse(data)
    expected = SHAPE.of(KEY)
    assert judge_header(expected, data).outcome is Outcome.MISS
    assert judge_record(expected, data, 0).outcome is Outcome.MISS
    assert judge_records(SHAPE, [KEY], [data], [0]) == [judge_record(expected, data, 0)]


@given(st.integers(0, 2**20))
def test_parts_are_aligned(size: int) -> None:
    assert align_up(size) - size in range(ALIGNMENT_BYTES)
    assert record_bytes(size) % ALIGNMENT_BYTES == 0
    assert record_bytes(size) == HEADER_BYTES + align_up(size) + TRAILER_BYTES


@pytest.mark.parametrize("name", ["repr_fp", "block_key", "scope"])
def test_a_digest_of_another_length_is_refused(name: str) -> None:
    header = parse_header(written())
    with pytest.raises(ValueError, match=name):
        encode_header(dataclasses.replace(header, **{name: b"short"}))


def test_every_flipped_bit_of_a_record_is_seen() -> None:
    record = written()
    padding = range(WHERE_THE_PAYLOAD_IS.stop, len(record) - TRAILER_BYTES)
    assert judge_record(SHAPE.of(KEY), record, checksum(record)) == USE
    for place in range(len(record)):
        for bit in range(8):
            other = bytearray(record)
            other[place] ^= 1 << bit
            flipped = bytes(other)
            verdict = judge_record(SHAPE.of(KEY), flipped, checksum(flipped))
            (batched,) = judge_records(SHAPE, [KEY], [flipped], [checksum(flipped)])
            assert verdict == batched
            # Padding is content of nothing: nobody reads it.
            assert (verdict == USE) is (place in padding), (place, bit, verdict)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"repr_fp": b"x" * 32}, "repr_fp"),
        ({"scope": b"x" * 16}, "scope"),
        ({"block_key": b"x" * 32}, "block_key"),
        ({"payload_bytes": 149}, "payload_bytes"),
        ({"scope": b"x" * 16, "block_key": b"x" * 32}, "scope"),
    ],
)
def test_a_record_of_something_else_names_the_first_field(
    changes: dict[str, object], field: str
) -> None:
    record = written(**changes)
    verdict = judge_record(SHAPE.of(KEY), record, checksum(record))
    assert (verdict.outcome, verdict.detail) == (Outcome.REJECT, field)
    assert field in REJECT_FIELDS


def test_a_generation_counts_only_where_it_is_known() -> None:
    header = parse_header(written())
    expected = Expected(REPR, SCOPE, KEY, len(PAYLOAD), generation=8)
    assert judge(expected, header).detail == "generation"
    assert judge(dataclasses.replace(expected, generation=7), header) == USE
    assert judge(dataclasses.replace(expected, generation=None), header) == USE


def test_ends_that_differ_are_torn_and_other_payloads_damaged() -> None:
    header = parse_header(written())
    ends = Trailer(header.generation, header.checksum)
    assert judge_content(header, ends, header.checksum) == USE
    for torn in (Trailer(8, header.checksum), Trailer(7, header.checksum ^ 1)):
        assert judge_content(header, torn, header.checksum).detail == "torn"
    damaged = judge_content(header, ends, header.checksum ^ 1)
    assert (damaged.outcome, damaged.detail) == (Outcome.QUARANTINE, "checksum")
    assert {"torn", "checksum", "conflict"} == set(QUARANTINE_REASONS)


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"generation": 99, "checksum": 1}, "stored"),
        ({"kind": RecordKind.TEXT_KV}, "conflict"),
        ({"num_tokens": 8}, "conflict"),
        ({"payload_bytes": 8}, "conflict"),
        ({"repr_fp": b"x" * 32}, "conflict"),
        ({"scope": b"x" * 16}, "conflict"),
    ],
)
def test_the_first_record_under_a_key_stays(changes: dict[str, object], detail: str) -> None:
    stored = parse_header(written())
    offered = dataclasses.replace(stored, **changes)  # type: ignore[arg-type]
    assert judge_rewrite(stored, offered).detail == detail


RECORDS = st.sampled_from(
    [
        *[written(), written(generation=8), written(kind=RecordKind.TEXT_KV, num_tokens=3)],
        *[written(repr_fp=b"x" * 32), written(scope=b"x" * 16), written(block_key=b"x" * 32)],
        *[written(b"short"), written(checksum=5), b"", b"no record", written()[:-1]],
        written()[:-TRAILER_BYTES] + written(generation=9)[-TRAILER_BYTES:],
        # Only the crc32 tells: another number of tokens, another kind, another modality.
        *[written()[:at] + b"\2" + written()[at + 1 :] for at in (6, 8, 9)],
        *[written()[:at] + b"\1" + written()[at + 1 :] for at in (6, 7)],
        *[written(modality=9), written(modality=Modality.MIXED), written(kind=9)],
    ]
)


@pytest.mark.parametrize("changes", [{"kind": 9}, {"modality": 9}, {"modality": 0}])
def test_a_kind_or_modality_that_is_none_is_no_record(changes: dict[str, object]) -> None:
    record = written(**changes)
    (verdict,) = judge_records(SHAPE, [KEY], [record], [checksum(record)])
    assert (verdict.outcome, verdict.detail) == (Outcome.MISS, "kind")


@given(st.lists(st.one_of(st.just(written()), RECORDS), max_size=12))
def test_a_batch_is_judged_like_each_of_its_records(records: list[bytes]) -> None:
    keys, sums = [KEY] * len(records), [checksum(record) for record in records]
    alone = [
        judge_record(SHAPE.of(KEY), record, value)
        for record, value in zip(records, sums, strict=True)
    ]
    assert judge_records(SHAPE, keys, records, sums) == alone


def test_a_right_batch_under_right_keys_in_another_order_is_rejected() -> None:
    keys = [bytes([number]) * 32 for number in range(3)]
    records = [written(block_key=key) for key in keys]
    sums = [checksum(record) for record in records]
    assert judge_records(SHAPE, keys, records, sums) == [USE] * 3
    swapped = judge_records(SHAPE, [keys[1], keys[0], keys[2]], records, sums)
    assert [verdict.detail for verdict in swapped] == ["block_key", "block_key", ""]
    assert ABSENT.outcome is Outcome.MISS
