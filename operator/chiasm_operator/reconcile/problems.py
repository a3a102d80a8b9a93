"""What is said of a resource beside its conditions: what is wrong, and what happened."""

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


@dataclass(frozen=True)
class Event:
    """Something to tell once; `warning` when a person should look."""

    reason: Reason
    message: str
    warning: bool = False
