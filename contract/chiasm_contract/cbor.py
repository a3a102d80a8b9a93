"""Deterministic CBOR for identities: the few types they use, one byte sequence each.

RFC 8949 section 4.2.1: shortest lengths, map keys in bytewise order of their encoding. Floats are
always 64-bit IEEE 754, so that a value has one form and an integer never equals a float. The
subset is closed: anything else is an error, for an identity must not depend on a guess.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence

Encodable = bool | int | float | str | bytes | Sequence["Encodable"] | Mapping[int, "Encodable"]

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP = range(6)
_FALSE, _TRUE, _FLOAT64 = b"\xf4", b"\xf5", b"\xfb"
_WIDTHS = ((24, 0xFF, ">B"), (25, 0xFFFF, ">H"), (26, 0xFFFFFFFF, ">I"), (27, 2**64 - 1, ">Q"))


def _head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes([major << 5 | argument])
    for additional, limit, layout in _WIDTHS:
        if argument <= limit:
            return bytes([major << 5 | additional]) + struct.pack(layout, argument)
    raise ValueError(f"integer {argument} needs more than 64 bits; identities hold at most 64")


def encode(value: Encodable) -> bytes:
    """The one encoding of `value`.

    Raises: ValueError for NaN, infinities, integers beyond 64 bits, non-integer map keys and any
    type outside the subset (None among them: a missing value is never an identity).
    """
    match value:
        case bool():
            return _TRUE if value else _FALSE
        case int():
            return _head(_UNSIGNED, value) if value >= 0 else _head(_NEGATIVE, -1 - value)
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{value} cannot be part of an identity; use a finite number")
            return _FLOAT64 + struct.pack(">d", value)
        case str():
            data = value.encode()
            return _head(_TEXT, len(data)) + data
        case bytes():
            return _head(_BYTES, len(value)) + value
        case Mapping():
            return _encode_map(value)
        case Sequence():
            return _head(_ARRAY, len(value)) + b"".join(encode(item) for item in value)
    raise ValueError(f"{type(value).__name__} cannot be part of an identity")


def _encode_map(value: Mapping[int, Encodable]) -> bytes:
    for key in value:
        if not isinstance(key, int) or isinstance(key, bool):
            raise ValueError(f"map key {key!r} is not an integer")
    pairs = sorted((encode(key), encode(item)) for key, item in value.items())
    return _head(_MAP, len(pairs)) + b"".join(key + item for key, item in pairs)
