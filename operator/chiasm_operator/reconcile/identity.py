"""Do all pods of a revision compute the same thing?

The first pod that reports becomes the revision's identity (trust on first use), latched in the
status; every other pod must equal it in every field. What a user pinned, and what is known of a
built-in model, is checked earlier, in the pod itself: such a pod never becomes ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chiasm_contract.api.identity_fields import to_text
from chiasm_contract.conditions import ConditionType, Finding, Reason, Truth
from chiasm_contract.messages import IdentityReport

from chiasm_operator.reconcile.observed import Observed, pods_of
from chiasm_operator.render import Target


@dataclass(frozen=True)
class IdentityVerdict:
    """The identity to keep in the status, and what is true of the pods."""

    latched: dict[str, Any] | None
    finding: Finding


def _finding(status: Truth, reason: Reason, message: str) -> Finding:
    return Finding(ConditionType.IDENTITY_VERIFIED, status, reason, message)


def _latch(revision: str, report: IdentityReport) -> dict[str, Any]:
    return {
        "revision": revision,
        "computeFingerprint": report.compute_fp,
        "reprFingerprint": report.repr_fp,
        "fields": {name: to_text(value) for name, value in sorted(report.fields.items())},
    }


def _difference(expected: Mapping[str, str], report: IdentityReport) -> str | None:
    """The first differing field, in words."""
    seen = {name: to_text(value) for name, value in report.fields.items()}
    for name in sorted(expected.keys() | seen.keys()):
        if expected.get(name) != seen.get(name):
            return (
                f"{name} is {seen.get(name, 'missing')}, "
                f"the revision's first pod reported {expected.get(name, 'nothing')}"
            )
    return None


def judge(target: Target, observed: Observed) -> IdentityVerdict:
    """Compare what the pods of the target's revision report."""
    reports: dict[str, IdentityReport] = {}
    refused: list[str] = []
    for pod in pods_of(observed, target.revision):
        name = pod["metadata"]["name"]
        state = observed.states.get(name)
        if state is None:
            continue
        if state.reason == "IdentityMismatch":
            refused.append(f"Pod {name}: {state.message}")
        elif state.identity is not None:
            reports[name] = state.identity

    stored = target.resource.status.get("identity")
    latched = stored if stored and stored["revision"] == target.revision else None
    if latched is None and reports:
        latched = _latch(target.revision, next(iter(reports.values())))

    for name, report in reports.items():
        different = _difference(latched.get("fields", {}), report) if latched else None
        if different:
            refused.append(f"Pod {name}: {different}.")
    if refused:
        return IdentityVerdict(
            latched, _finding(Truth.FALSE, Reason.IDENTITY_MISMATCH, " ".join(refused[:3]))
        )
    if not reports:
        return IdentityVerdict(
            latched,
            _finding(Truth.UNKNOWN, Reason.NOT_REPORTED, "No pod has reported its identity."),
        )
    fingerprint = latched["computeFingerprint"][:12] if latched else ""
    message = f"All reporting pods compute {fingerprint}."
    return IdentityVerdict(latched, _finding(Truth.TRUE, Reason.IDENTITY_CONFIRMED, message))
