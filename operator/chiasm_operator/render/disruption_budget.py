"""The PodDisruptionBudget: a drained node takes one pod at a time."""

from __future__ import annotations

from typing import Any

from chiasm_operator.render.target import Target


def render(target: Target) -> dict[str, Any] | None:
    """The budget; None for a single pod, whose eviction it would only delay.

    With an autoscaler it stays while there is one pod for now: that one may be evicted too.
    """
    scaling = target.spec.autoscaling
    if (scaling.max_replicas if scaling else target.spec.replicas) < 2:
        return None
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": target.metadata(),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": target.selector},
        },
    }
