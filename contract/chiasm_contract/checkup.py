"""What a checkup of a pod says: what was looked at, and what is wrong.

The worker looks at its engine, the sidecar at its own side; `chiasm doctor` shows both. Three of
the checks find the bottlenecks that serving several modalities from one cache has:

    attention   the sequence lengths of pictures and text do not meet
    pool        blocks outlive the requests that they were for
    drift       the fast path answers otherwise than the plain one: positions, caches, chunks

Nothing here says what clients asked, showed or were told.

Must not know: how anything is measured.
"""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

Check = Literal["attention", "pool", "drift", "identity", "probes", "timeouts", "leases"]
Severity = Literal["warning", "critical"]
CHECKS: tuple[Check, ...] = get_args(Check)

BOTTLENECKS: dict[Check, str] = {
    "attention": "sequence lengths do not meet",
    "pool": "blocks outlive their requests",
    "drift": "the fast path drifts from the plain one",
}
"""The three that have a name of their own; the other checks look at what is around them."""

CHECKUP_PATH = "/-/checkup"
"""On the worker's socket and on a pod's metrics port, by POST."""

# What a whole checkup may take: the sidecar waits a little longer for it, and a person longer yet.
MAX_CHECKUP_SECONDS = 40.0


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Finding(_Message):
    """Something that is wrong."""

    check: Check
    severity: Severity
    what: str
    where: str
    how_bad: str
    what_to_do: str


class Look(_Message):
    """One check: what was read, or why it could not be."""

    check: Check
    taken: bool = True
    words: str


class CheckupReport(_Message):
    """One look at a pod, or at its worker alone."""

    looks: tuple[Look, ...] = ()
    findings: tuple[Finding, ...] = ()
    seconds: float = Field(default=0.0, description="How long it took.")

    @property
    def missed(self) -> tuple[Look, ...]:
        """The checks that could not be done."""
        return tuple(look for look in self.looks if not look.taken)
