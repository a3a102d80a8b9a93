"""A weight as people write it, and as parts of a whole.

`"5"`, `"2.5"` and `"0.25"` are per cent with at most two decimals; inside they are parts of
10,000, so that nothing is rounded on the way. Must not know: who has which weight.
"""

from __future__ import annotations

import re

from chiasm_contract.traffic import WHOLE

PATTERN = r"^(100(\.0{1,2})?|[0-9]{1,2}(\.[0-9]{1,2})?)$"
ALLOWED = "0 to 100 with at most two decimals, such as 5 or 2.5"


def parse_weight(text: str) -> int:
    """Parts of 10,000.

    Raises: ValueError naming the value and what is allowed.
    """
    if not re.fullmatch(PATTERN, text):
        raise ValueError(f"{text!r} is no weight; allowed are {ALLOWED}")
    whole, _, decimals = text.partition(".")
    return int(whole) * 100 + int(decimals.ljust(2, "0") or 0)


def weight_text(parts: int) -> str:
    """`parts` as a person writes them: 250 is 2.5."""
    if not 0 <= parts <= WHOLE:
        raise ValueError(f"{parts} is not between 0 and {WHOLE}")
    return f"{parts / 100:.2f}".rstrip("0").rstrip(".")
