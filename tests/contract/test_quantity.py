"""Quantities by value."""

from __future__ import annotations

from fractions import Fraction

import pytest
from chiasm_contract import quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("500m", Fraction(1, 2)),
        ("1.5", Fraction(3, 2)),
        ("2k", 2000),
        ("256Mi", 256 * 2**20),
        ("1Gi", 2**30),
        ("1G", 10**9),
        ("1.5Gi", 3 * 2**29),
        (7, 7),
    ],
)
def test_values(text: str | int, value: int | Fraction) -> None:
    assert quantity.parse(text) == value


@pytest.mark.parametrize("text", ["", "Mi", "1Zi", "-1", "1 Gi", "one"])
def test_others_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity.parse(text)


def test_bytes_are_whole() -> None:
    assert quantity.to_bytes("20Mi") == 20971520
    with pytest.raises(ValueError, match="whole number of bytes"):
        quantity.to_bytes("1500m")
