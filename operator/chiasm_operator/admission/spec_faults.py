"""What is wrong with a spec although every CEL rule of the CRD holds.

Must not know: the stored resource, Kubernetes clients.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from chiasm_contract.api import identity_fields
from chiasm_contract.api.v1alpha1 import Spec
from chiasm_contract.fingerprint import Value

from chiasm_operator.render.configuration.faults import elsewhere, faults
from chiasm_operator.resource import InvalidSpec, Manifest, parse_spec

_KEY = re.compile(
    r"^(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?$",
    re.ASCII,
)
_VALUE = re.compile(r"^(?:[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?)?$", re.ASCII)
# Identity field -> the spec field that decides it, and how a pinned value is written.
_DECIDED_BY_SPEC: Mapping[str, tuple[str, Callable[[Spec], Value]]] = {
    "repr.block_size": ("spec.engine.blockSize", lambda spec: spec.engine.block_size),
    "compute.compute_dtype": ("spec.engine.dtype", lambda spec: spec.engine.dtype),
}

PathAndMessage = tuple[str, str]


def spec_faults(spec: Manifest) -> Iterator[PathAndMessage]:
    """Path and sentence of each fault."""
    try:
        parsed = parse_spec(spec)
        yield from _contradictions(parsed)
        yield from faults(parsed)
        yield from elsewhere(parsed)
    except InvalidSpec as invalid:
        # The CRD in the cluster allows what this operator does not know: it is of another version.
        for path, message in invalid.faults:
            yield path, f"{message} This operator would not serve it; is its version the CRD's?"
    template = spec.get("podTemplate", {})
    for section in ("labels", "nodeSelector", "annotations"):
        texts: Mapping[str, str] = template.get(section, {})
        yield from _syntax(f"spec.podTemplate.{section}", texts, values=section != "annotations")


def _contradictions(spec: Spec) -> Iterator[PathAndMessage]:
    for name, (path, value_of) in _DECIDED_BY_SPEC.items():
        pinned = spec.model.expected_identity.get(name)
        decided = identity_fields.to_text(value_of(spec))
        if pinned is not None and pinned != decided:
            yield (
                f"spec.model.expectedIdentity[{name}]",
                f"{pinned!r} can never be reported while {path} is {decided}, so no pod would "
                "become ready; change one of them.",
            )


def _syntax(path: str, texts: Mapping[str, str], *, values: bool) -> Iterator[PathAndMessage]:
    """Pods with such a key or value would be refused, long after the apply."""
    for key, value in texts.items():
        if not _KEY.fullmatch(key):
            yield (
                f"{path}[{key}]",
                "is no key; write NAME or PREFIX/NAME, the prefix a DNS name in lower case, the "
                "name up to 63 letters, digits, '-', '_' or '.', with a letter or digit at both "
                "ends.",
            )
        if values and not _VALUE.fullmatch(value):
            yield (
                f"{path}[{key}]",
                f"{value!r} is no label's value; write up to 63 letters, digits, '-', '_' or '.', "
                "with a letter or digit at both ends.",
            )
