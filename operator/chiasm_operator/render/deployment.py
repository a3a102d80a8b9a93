"""The Deployment of one revision; how many pods it has is decided elsewhere."""

from __future__ import annotations

from typing import Any

from chiasm_contract import names

from chiasm_operator.render.revision import Record
from chiasm_operator.render.target import Target


def render(
    target: Target, record: Record, replicas: int, restarted_at: str | None = None
) -> dict[str, Any]:
    """The Deployment; its own strategy serves restarts, for a template has one revision only."""
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
            "template": _template(record, restarted_at),
        },
    }


def _template(record: Record, restarted_at: str | None) -> dict[str, Any]:
    template = dict(record.template)
    if restarted_at is None:
        return template
    metadata = template["metadata"]
    annotations = {**metadata.get("annotations", {}), names.ANNOTATION_RESTARTED_AT: restarted_at}
    return {**template, "metadata": {**metadata, "annotations": annotations}}
