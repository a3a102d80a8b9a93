"""The encoder against RFC 8949's own examples, and its closed subset."""

from __future__ import annotations

import math

import pytest
from chiasm_contract import cbor
from hypothesis import given
from hypothesis import strategies as st

# RFC 8949, appendix A, those within the subset. Floats there are shortest; ours are 64-bit always.
RFC_VECTORS = [
    (0, "00"),
    (1, "01"),
    (10, "0a"),
    (23, "17"),
    (24, "1818"),
    (25, "1819"),
    (100, "1864"),
    (1000, "1903e8"),
    (1000000, "1a000f4240"),
    (1000000000000, "1b000000e8d4a51000"),
    (18446744073709551615, "1bffffffffffffffff"),
    (-18446744073709551616, "3bffffffffffffffff"),
    (-1, "20"),
    (-10, "29"),
    (-100, "3863"),
    (-1000, "3903e7"),
    (1.1, "fb3ff199999999999a"),
    (1.0e300, "fb7e37e43c8800759c"),
    (-4.1, "fbc010666666666666"),
    (False, "f4"),
    (True, "f5"),
    (b"", "40"),
    (b"\x01\x02\x03\x04", "4401020304"),
    ("", "60"),
    ("a", "6161"),
    ("IETF", "6449455446"),
    ('"\\', "62225c"),
    ("\u00fc", "62c3bc"),
    ("\u6c34", "63e6b0b4"),
    ("\U00010151", "64f0908591"),
    ([], "80"),
    ([1, 2, 3], "83010203"),
    ([1, [2, 3], [4, 5]], "8301820203820405"),
    (list(range(1, 26)), "98190102030405060708090a0b0c0d0e0f101112131415161718181819"),
    ({}, "a0"),
    ({1: 2, 3: 4}, "a201020304"),
]

SCALARS = (
    st.booleans()
    | st.integers(-(2**64), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(st.integers(0, 2**64 - 1), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(("value", "encoded"), RFC_VECTORS, ids=lambda item: str(item)[:20])
def test_rfc_vectors(value: cbor.Encodable, encoded: str) -> None:
    assert cbor.encode(value).hex() == encoded


def test_map_keys_are_sorted_by_their_encoding() -> None:
    assert cbor.encode({100: 1, 2: 1, -1: 1}).hex() == "a3020118640120" + "01"
    assert cbor.encode({2: 1, 100: 1}) == cbor.encode({100: 1, 2: 1})


def test_an_integer_never_equals_a_float_or_a_bool() -> None:
    assert len({cbor.encode(1), cbor.encode(1.0), cbor.encode(True), cbor.encode("1")}) == 4


@pytest.mark.parametrize(
    "value",
    [None, math.nan, math.inf, -math.inf, 2**64, -(2**64) - 1, {"a": 1}, {True: 1}, object()],
)
def test_what_has_no_one_meaning_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"cannot be part|64 bit|not an integer"):
        cbor.encode(value)  # type: ignore[arg-type]


def frozen(value: object) -> object:
    """`value` with its types, so that 1, 1.0 and True differ; -0.0 and 0.0 differ as bytes do."""
    match value:
        case dict():
            return ("map", frozenset((key, frozen(item)) for key, item in value.items()))
        case list():
            return ("list", tuple(map(frozen, value)))
        case float():
            return ("float", value, math.copysign(1, value))
    return (type(value).__name__, value)


@given(VALUES, VALUES)
def test_different_values_never_share_bytes(one: object, other: object) -> None:
    same_bytes = cbor.encode(one) == cbor.encode(other)  # type: ignore[arg-type]
    assert same_bytes == (frozen(one) == frozen(other))


@given(VALUES)
def test_no_encoding_is_the_beginning_of_another(value: object) -> None:
    encoded = cbor.encode([value, 1])  # type: ignore[arg-type]
    assert encoded.startswith(b"\x82" + cbor.encode(value))  # type: ignore[arg-type]
    assert encoded.endswith(b"\x01")
