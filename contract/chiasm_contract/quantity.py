"""Kubernetes quantities ("256Mi", "500m", "2") as exact numbers.

The API server rewrites quantities into a canonical form, so two manifests are compared by value,
never by spelling.
"""

from __future__ import annotations

import re
from fractions import Fraction

PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"

_QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]+)?)([a-zA-Z]*)$")
_FACTORS = {
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{letter: Fraction(1000) ** (power + 1) for power, letter in enumerate("kMGTPE")},
    **{f"{letter}i": Fraction(1024) ** (power + 1) for power, letter in enumerate("KMGTPE")},
}


def parse(text: str | int | float) -> Fraction:
    """The exact value of `text`.

    Raises: ValueError when it is no quantity.
    """
    match = _QUANTITY.match(str(text))
    if match is None or match[2] not in _FACTORS:
        raise ValueError(f"{text!r} is not a quantity; write a number like 2, 500m or 256Mi")
    return Fraction(match[1]) * _FACTORS[match[2]]


def to_bytes(text: str | int) -> int:
    """`text` as whole bytes.

    Raises: ValueError when it is no quantity or not whole.
    """
    value = parse(text)
    if value.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of bytes; write a number like 256Mi")
    return int(value)
