"""May this resource be stored as it is? Decided from the request alone.

Every replica of the operator answers, also one that does not lead, so nothing may be known here
but the two manifests. What the stored resource already had wrong is a warning: a fault of
yesterday must not stand in the way of an unrelated change today.

Must not know: HTTP, Kubernetes clients, clocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from chiasm_contract import rollout_annotations

from chiasm_operator.admission.advice import advice
from chiasm_operator.admission.spec_faults import spec_faults
from chiasm_operator.resource import Manifest


@dataclass(frozen=True)
class Fault:
    """What cannot be stored: the field's path, and a sentence with what is allowed."""

    path: str
    message: str
    hint: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.path}: {self.message}{self.hint}"


@dataclass(frozen=True)
class Verdict:
    """Allowed when there are no faults; warnings are shown either way."""

    faults: tuple[Fault, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether the resource may be stored."""
        return not self.faults


def review(old: Manifest | None, new: Manifest) -> Verdict:
    """The verdict on storing `new` where `old` was; `old` is None when it is created.

    One that is being deleted passes whatever it holds: else its finalizers could not be taken off.
    """
    if "deletionTimestamp" in new["metadata"]:
        return Verdict()
    before = set(_faults(old)) if old else set()
    now = tuple(_faults(new))
    return Verdict(
        faults=tuple(fault for fault in now if fault not in before),
        warnings=(
            *(f"{fault} (stored like this before)" for fault in now if fault in before),
            *advice(old, new),
        ),
    )


def _faults(manifest: Manifest) -> Iterator[Fault]:
    annotations = manifest["metadata"].get("annotations") or {}
    for fault in rollout_annotations.faults(annotations):
        yield Fault(f"metadata.annotations[{fault.annotation}]", fault.message, fault.hint)
    for path, message in spec_faults(manifest.get("spec") or {}):
        yield Fault(path, message)
