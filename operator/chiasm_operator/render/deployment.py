"""The Deployment: the pods, and how a new revision replaces the old one."""

from __future__ import annotations

from typing import Any

from chiasm_contract import names

from chiasm_operator.render import pod
from chiasm_operator.render.target import Target


def render(target: Target) -> dict[str, Any]:
    """The Deployment."""
    rollout = target.spec.rollout
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": target.metadata(labels={names.LABEL_REVISION: target.revision}),
        "spec": {
            "replicas": target.spec.replicas,
            "revisionHistoryLimit": 2,
            "progressDeadlineSeconds": rollout.progress_deadline_seconds,
            "selector": {"matchLabels": target.selector},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {
                    "maxSurge": rollout.max_surge,
                    "maxUnavailable": rollout.max_unavailable,
                },
            },
            "template": pod.render(target),
        },
    }
