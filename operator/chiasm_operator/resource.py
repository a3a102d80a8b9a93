"""A MultimodalInference as the operator handles it: parsed once, then only passed on.

Must not know: Kubernetes clients, clocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from chiasm_contract.api.v1alpha1 import Spec
from chiasm_contract.conditions import Condition
from pydantic import ValidationError

Manifest = Mapping[str, Any]

# Kinds of which another group that we write to has one of the same name.
_AMBIGUOUS = {("VaultDynamicSecret", "generators.external-secrets.io")}

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def kind_of(manifest: Manifest) -> str:
    """Its kind, with the group where two groups have one of that name, as kubectl writes it."""
    kind, group = manifest["kind"], manifest.get("apiVersion", "").rpartition("/")[0]
    return f"{kind}.{group}" if (kind, group) in _AMBIGUOUS else str(kind)


class InvalidSpec(ValueError):
    """The stored spec cannot be served; the message names the field and what is allowed.

    Where the schema is broken, `faults` are path and sentence of every field; the message is the
    first of them.
    """

    def __init__(self, message: str, faults: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.faults = faults


@dataclass(frozen=True)
class Images:
    """The container images of a pod; part of its revision."""

    worker: str
    sidecar: str
    sidecar_peers: str  # the sidecar with NIXL, for a resource whose pods read each other's memory
    pull_policy: str = "IfNotPresent"
    agent: str = "openbao/openbao"  # a server's agent, where pods have one


@dataclass(frozen=True)
class Resource:
    """Who a resource is and what its status said last."""

    name: str
    namespace: str
    uid: str
    generation: int
    deleting: bool
    spec: Manifest
    status: Manifest
    # Who has spec.replicas in a manifest that they apply, rather than scaling.
    appliers_of_replicas: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions that are stored now."""
        return tuple(
            Condition(
                type=item["type"],
                status=item["status"],
                reason=item["reason"],
                message=item["message"],
                last_transition_time=item["lastTransitionTime"],
                observed_generation=item.get("observedGeneration", 0),
            )
            for item in self.status.get("conditions", ())
        )


def from_manifest(body: Manifest) -> Resource:
    """The resource behind what the API server sent."""
    metadata = body["metadata"]
    return Resource(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        deleting="deletionTimestamp" in metadata,
        spec=body.get("spec", {}),
        status=body.get("status", {}),
        appliers_of_replicas=tuple(_appliers_of_replicas(metadata)),
        annotations=metadata.get("annotations") or {},
    )


def _appliers_of_replicas(metadata: Manifest) -> Iterator[str]:
    """Who applies a manifest with spec.replicas in it.

    Server-side it is who owns the field. Who creates a resource by applying on the client's side
    owns each default too, so there the manifest itself is asked, which lies in an annotation.
    """
    by_client = _has_replicas((metadata.get("annotations") or {}).get(_LAST_APPLIED, ""))
    for entry in metadata.get("managedFields", ()):
        fields = entry.get("fieldsV1", {})
        if entry["operation"] == "Apply":
            applies = "f:replicas" in fields.get("f:spec", {})
        else:
            annotations = fields.get("f:metadata", {}).get("f:annotations", {})
            applies = by_client and f"f:{_LAST_APPLIED}" in annotations
        if applies:
            yield entry["manager"]


def _has_replicas(applied: str) -> bool:
    """Whether a manifest, as JSON that anybody may have edited, sets spec.replicas."""
    try:
        return json.loads(applied)["spec"]["replicas"] is not None
    except (ValueError, LookupError, TypeError):
        return False


def parse_spec(spec: Manifest) -> Spec:
    """`spec` as checked data.

    Raises: InvalidSpec naming the fields that are wrong. The API server refuses most such
    specs; one written under an older schema can still be stored.
    """
    try:
        return Spec.model_validate(spec)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        faults = tuple(
            (".".join(["spec", *map(str, each["loc"])]), f"{each['msg']}.") for each in found
        )
        raise InvalidSpec(": ".join(faults[0]), faults) from error
