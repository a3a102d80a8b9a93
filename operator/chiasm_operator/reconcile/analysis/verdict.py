"""What a look at both revisions found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from chiasm_contract.conditions import Reason


@dataclass(frozen=True)
class Verdict:
    """pass, fail, or hold when there is too little to say; the message says in which modality."""

    kind: Literal["pass", "fail", "hold"]
    reason: Reason
    message: str
