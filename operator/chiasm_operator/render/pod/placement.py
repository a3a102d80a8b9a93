"""Where a pod may lie and what it holds there: its GPU, and `spec.podTemplate` in full.

One GPU per replica, as a counted resource or through a ResourceClaim (Dynamic Resource Allocation).
"""

from __future__ import annotations

from typing import Any

from chiasm_contract import names

from chiasm_operator.render.configuration import pulling
from chiasm_operator.render.target import Target

_GPU_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
_DEVICE_CLAIM = "device"
_AS_THEY_ARE = (
    "nodeSelector", "tolerations", "affinity", "schedulerName", "priorityClassName",
    "runtimeClassName",
)  # fmt: skip


def gpu_resource(target: Target) -> str | None:
    """The counted resource that a pod asks one of; None on a CPU or when a claim brings the GPU."""
    device = target.spec.resources.device
    if device.claim_template_name:
        return None
    return device.resource_name or _GPU_RESOURCES.get(device.type)


def worker_resources(target: Target) -> dict[str, Any]:
    """`resources` of the worker."""
    resources = target.spec.resources
    gpu = gpu_resource(target)
    claims = [{"name": _DEVICE_CLAIM}] if resources.device.claim_template_name else []
    return {
        "requests": resources.requests,
        "limits": {**resources.limits, **({gpu: "1"} if gpu else {})},
        **({"claims": claims} if claims else {}),
    }


def variables(target: Target) -> list[dict[str, str]]:
    """Variables of the worker beside the operator's own, whose names the schema refuses here.

    Kubernetes would put another variable's value for $(NAME); it reads $$ as $.
    """
    chosen = target.spec.pod_template.env
    return [{"name": item.name, "value": item.value.replace("$", "$$")} for item in chosen]


def groups(target: Target) -> dict[str, Any]:
    """Part of the pod's security context."""
    chosen = target.spec.pod_template.supplemental_groups
    return {"supplementalGroups": list(chosen)} if chosen else {}


def pod_fields(target: Target) -> dict[str, Any]:
    """Fields of the pod's spec."""
    template = target.spec.pod_template
    dumped = template.model_dump(by_alias=True, exclude_none=True)
    claim = target.spec.resources.device.claim_template_name
    claims = [{"name": _DEVICE_CLAIM, "resourceClaimTemplateName": claim}] if claim else []
    secrets = pulling.secrets(target)
    return {
        "topologySpreadConstraints": _spread(target, dumped["topologySpreadConstraints"]),
        **({"resourceClaims": claims} if claims else {}),
        **{key: dumped[key] for key in _AS_THEY_ARE if dumped.get(key)},
        **({"imagePullSecrets": secrets} if secrets else {}),
    }


def _spread(target: Target, chosen: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pods to count are the resource's. For a chosen rule only those of the same revision:
    pods of the old one, soon to go, must not leave a new one without a place."""
    pods = {"labelSelector": {"matchLabels": target.selector}}
    if not chosen:
        preferred = {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
        }
        return [{**preferred, **pods}]
    return [{**item, **pods, "matchLabelKeys": [names.LABEL_REVISION]} for item in chosen]
