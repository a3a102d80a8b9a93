"""Something that keeps a resource from being as it should be."""

from __future__ import annotations

from dataclasses import dataclass

from chiasm_contract.conditions import Reason


@dataclass(frozen=True)
class Problem:
    """A reason, and a sentence that names what is at fault and what to do.

    Attributes:
        serves: the pods serve as they should nevertheless, only with less help.
    """

    reason: Reason
    message: str
    serves: bool = False
