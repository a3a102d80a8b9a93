"""The ConfigMap of retired namespaces: one for all revisions, so that a change rolls no pod.

The kubelet writes what changes in it into running pods, and their sidecars read it anew. It is no
part of `sidecar.json`, of the pod template or of the revision.
"""

from __future__ import annotations

from typing import Any

from chiasm_contract import names

from chiasm_operator.render.target import Target

_VOLUME = "retired-namespaces"


def config_name(target: Target) -> str:
    """Name of the ConfigMap."""
    return f"{target.name}-namespaces"


def render(target: Target) -> dict[str, Any] | None:
    """The ConfigMap; None without tiers, where there are no namespaces."""
    tiers = target.spec.tiers
    if tiers is None:
        return None
    lines = "".join(f"{prefix}\n" for prefix in tiers.retired_namespaces)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": target.metadata(config_name(target)),
        "data": {names.RETIRED_KEY: lines},
    }


def volumes(target: Target) -> list[dict[str, Any]]:
    """The pod's volume for it."""
    if target.spec.tiers is None:
        return []
    return [{"name": _VOLUME, "configMap": {"name": config_name(target)}}]


def mounts(target: Target) -> list[dict[str, Any]]:
    """Where the sidecar finds it. No subPath: such mounts never change."""
    if target.spec.tiers is None:
        return []
    return [{"name": _VOLUME, "mountPath": names.RETIRED_DIR, "readOnly": True}]
