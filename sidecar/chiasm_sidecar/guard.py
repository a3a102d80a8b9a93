"""May this worker's cached vectors be used here? A pure verdict.

Reads no clock, no environment, no network: it compares what the resource's revision expects with
what the worker reports, and checks that the reported digest is that of the reported fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chiasm_contract.fingerprint import (
    SCHEMA,
    Difference,
    Identity,
    Value,
    compute_fp,
    differences,
    repr_fp,
)
from chiasm_contract.messages import IdentityReport


@dataclass(frozen=True)
class Verdict:
    """Admit when `differences` is empty, else reject because of them."""

    differences: tuple[Difference, ...]

    @property
    def admitted(self) -> bool:
        """Whether the worker may serve."""
        return not self.differences

    @property
    def message(self) -> str:
        """A sentence that names every differing field, expected and seen."""
        if self.admitted:
            return "The worker's KV identity is the expected one."
        named = "; ".join(str(difference) for difference in self.differences)
        return f"The worker's KV identity differs: {named}."


def judge(expected: Mapping[str, Value], report: IdentityReport) -> Verdict:
    """Compare the expected part of an identity with the whole that a worker reports."""
    return Verdict(differences(expected, report.fields) + _digest_differences(report))


def _digest_differences(report: IdentityReport) -> tuple[Difference, ...]:
    """A digest must be that of the fields beside it, or it is the name of something else."""
    other = (Difference("fields", f"those of identity schema {SCHEMA}", "other ones"),)
    try:
        identity = Identity.from_fields(report.fields)
    except ValueError:
        return other
    pairs = (
        ("compute_fp", compute_fp(identity.compute), report.compute_fp),
        ("repr_fp", repr_fp(identity.repr), report.repr_fp),
    )
    return tuple(Difference(name, ours, theirs) for name, ours, theirs in pairs if ours != theirs)
