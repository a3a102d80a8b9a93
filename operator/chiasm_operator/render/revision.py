"""A revision as it is kept: what was asked for, and exactly what was made of it.

The ControllerRevision holds the pod template and the files as they were rendered when the revision
came into being. Whatever of the revision is written later is read from there: a newer operator,
whose templates differ, then changes no pod, and a file never holds what the image beside it does
not know. The spec in it is what `chiasm rollout undo` brings back.

Must not know: which revision is stable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chiasm_contract import names

from chiasm_operator.render import configmap, delivery, pod
from chiasm_operator.render.configuration.faults import faults
from chiasm_operator.render.target import NOT_OF_A_REVISION, NOT_SERVING, Target
from chiasm_operator.resource import InvalidSpec, Manifest

RECORD_VERSION = 1


@dataclass(frozen=True)
class Record:
    """One revision.

    Attributes:
        spec: what makes it, fields at their defaults left out.
        objects: of other projects that deliver its sources, without their metadata.
    """

    revision: str
    spec: Mapping[str, Any]
    images: Mapping[str, str]
    template: Manifest
    files: Mapping[str, str]
    objects: Sequence[Mapping[str, Any]] = ()


def record_of(target: Target) -> Record:
    """The record of a revision that is new.

    Raises: InvalidSpec when the spec holds a value that no part would accept.
    """
    for path, message in faults(target.spec):
        raise InvalidSpec(f"{path}: {message}")
    return Record(
        revision=target.revision,
        spec=_kept_spec(target),
        images={"worker": target.worker_image, "sidecar": target.sidecar_image},
        template=pod.render(target),
        files=configmap.files(target),
        objects=delivery.made(target),
    )


def _kept_spec(target: Target) -> dict[str, Any]:
    """As it was written: a quantity of one spelling for all would be none that the API takes."""
    kept = target.spec.model_dump(
        mode="json", by_alias=True, exclude=NOT_SERVING, exclude_defaults=True
    )
    chosen = target.environment
    if chosen is not None:
        alone = chosen.model_dump(
            mode="json", by_alias=True, exclude=NOT_OF_A_REVISION, exclude_defaults=True
        )
        kept["config"] = {
            **kept.get("config", {}), "environment": chosen.name, "environments": [alone],
        }  # fmt: skip
    return kept


def parse(live: Manifest) -> Record | None:
    """The record in a ControllerRevision; None when it is not one that we can read."""
    data = live.get("data", {})
    revision = live["metadata"].get("labels", {}).get(names.LABEL_REVISION)
    if data.get("version") != RECORD_VERSION or not revision:
        return None
    try:
        return Record(
            revision, data["spec"], data["images"], data["template"], data["files"],
            data.get("objects", ()),
        )  # fmt: skip
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
            **({"objects": [dict(each) for each in record.objects]} if record.objects else {}),
        },
    }
