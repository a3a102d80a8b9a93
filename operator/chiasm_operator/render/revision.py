"""A revision as it is kept: what was asked for, and exactly what was made of it.

The ControllerRevision holds the pod template and the files as they were rendered when the revision
came into being. Whatever of the revision is written later is read from there: a newer operator,
whose templates differ, then changes no pod, and a file never holds what the image beside it does
not know. The spec in it is what `chiasm rollout undo` brings back.

Must not know: which revision is stable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chiasm_contract import names

from chiasm_operator.render import configmap, pod
from chiasm_operator.render.target import NOT_SERVING, Target
from chiasm_operator.resource import Manifest

RECORD_VERSION = 1


@dataclass(frozen=True)
class Record:
    """One revision. `spec` holds what makes it, fields at their defaults left out."""

    revision: str
    spec: Mapping[str, Any]
    images: Mapping[str, str]
    template: Manifest
    files: Mapping[str, str]


def record_of(target: Target) -> Record:
    """The record of a revision that is new.

    Raises: InvalidSpec when the spec holds a value that no part would accept.
    """
    # As it was written: a quantity of one spelling for all would be none that the API takes.
    return Record(
        revision=target.revision,
        spec=target.spec.model_dump(
            mode="json", by_alias=True, exclude=NOT_SERVING, exclude_defaults=True
        ),
        images={"worker": target.images.worker, "sidecar": target.sidecar_image},
        template=pod.render(target),
        files=configmap.files(target),
    )  # fmt: skip


def parse(live: Manifest) -> Record | None:
    """The record in a ControllerRevision; None when it is not one that we can read."""
    data = live.get("data", {})
    revision = live["metadata"].get("labels", {}).get(names.LABEL_REVISION)
    if data.get("version") != RECORD_VERSION or not revision:
        return None
    try:
        return Record(revision, data["spec"], data["images"], data["template"], data["files"])
    except KeyError:
        return None


def recovered(revision: str, deployment: Manifest, config: Manifest | None) -> Record:
    """The record of pods that stand although theirs was deleted."""
    template = deployment["spec"]["template"]
    metadata = template.get("metadata", {})
    annotations = {
        key: value
        for key, value in metadata.get("annotations", {}).items()
        if key not in (names.ANNOTATION_RESTARTED_AT, names.ANNOTATION_CONFIG_RESTART)
    }
    kept = {key: value for key, value in metadata.items() if value is not None}
    return Record(
        revision=revision,
        spec={},
        images={},
        template={**template, "metadata": {**kept, "annotations": annotations}},
        files=(config or {}).get("data", {}),
    )


def render(target: Target, record: Record, number: int) -> dict[str, Any]:
    """The ControllerRevision; the higher `number`, the later it was asked for."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": target.revision_metadata(record.revision),
        "revision": number,
        "data": {
            "version": RECORD_VERSION,
            "spec": dict(record.spec),
            "images": dict(record.images),
            "template": dict(record.template),
            "files": dict(record.files),
        },
    }
