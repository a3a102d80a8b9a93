"""What may lie under a key instead of its record: damage, and halves of two records."""

from __future__ import annotations

import random
from collections.abc import Callable

from chiasm_contract.block_record import HEADER_BYTES, TRAILER_BYTES

Damage = Callable[[bytes, bytes], bytes]


def _bit(first: int, last: int | None) -> Damage:
    def flip(record: bytes, _: bytes) -> bytes:
        at = random.choice(range(len(record))[first:last])
        return record[:at] + bytes([record[at] ^ 1 << random.randrange(8)]) + record[at + 1 :]

    return flip


def _torn(record: bytes, other: bytes) -> bytes:
    half = len(record) // 2
    return record[:half] + other[half:]


def _torn_between_equal_ends(record: bytes, other: bytes) -> bytes:
    half = len(record) // 2
    return record[:half] + other[half:-TRAILER_BYTES] + record[-TRAILER_BYTES:]


# Kind -> rows of the survey, and (the right record, another one) -> what lies there.
DAMAGES: dict[str, tuple[str, Damage]] = {
    "bit flipped in the header": ("33 34", _bit(0, HEADER_BYTES)),
    "bit flipped in the payload": ("33 34", _bit(HEADER_BYTES, -TRAILER_BYTES)),
    "bit flipped in the trailer": ("33 34", _bit(-TRAILER_BYTES, -TRAILER_BYTES + 20)),
    "torn, ends differ": ("32 35", _torn),
    "torn, ends agree": ("32 35", _torn_between_equal_ends),
    "cut short": ("37 38", lambda record, _: record[: len(record) // 2]),
    "half of it zeros": (
        "37 38",
        lambda record, _: record[: len(record) // 2].ljust(len(record), b"\0"),
    ),
    "nothing but the header": ("38", lambda record, _: record[:HEADER_BYTES]),
    "something else": ("-", lambda record, _: random.randbytes(len(record))),
    "empty": ("38", lambda *_: b""),
    "swapped with another block": ("23 25 40", lambda _, other: other),
}
