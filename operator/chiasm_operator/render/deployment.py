"""The Deployment of one revision; how many pods it has is decided elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chiasm_operator.render.revision import Record
from chiasm_operator.render.target import Target


def render(
    target: Target, record: Record, replicas: int, restarts: Mapping[str, str]
) -> dict[str, Any]:
    """The Deployment; its own strategy serves restarts, for a template has one revision only.

    `restarts` are annotations of the template: another value there replaces the pods.
    """
    rollout = target.spec.rollout
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": target.revision_metadata(record.revision),
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 2,
            "progressDeadlineSeconds": rollout.progress_deadline_seconds,
            "selector": {"matchLabels": target.revision_selector(record.revision)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {
                    "maxSurge": rollout.max_surge,
                    "maxUnavailable": rollout.max_unavailable,
                },
            },
            "template": _template(record, restarts),
        },
    }


def _template(record: Record, restarts: Mapping[str, str]) -> dict[str, Any]:
    template = dict(record.template)
    if not restarts:
        return template
    metadata = template["metadata"]
    annotations = {**metadata.get("annotations", {}), **restarts}
    return {**template, "metadata": {**metadata, "annotations": annotations}}
