"""The autoscaler, a HorizontalPodAutoscaler or KEDA's ScaledObject: it scales the resource itself.

Through the resource's scale subresource it writes `spec.replicas`, which it thereby owns, and reads
`status.selector` and `status.replicas`. So it needs to know nothing of Deployments and revisions.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from chiasm_contract import names, quantity
from chiasm_contract.api.autoscaling import Autoscaling, Hpa, Keda, PrometheusTrigger

from chiasm_operator.render.target import Target

HPA, SCALED_OBJECT = "HorizontalPodAutoscaler", "ScaledObject"


def render(target: Target) -> dict[str, Any] | None:
    """The autoscaler; None when `replicas` is the user's own to set."""
    chosen = target.spec.autoscaling
    if chosen is None:
        return None
    if chosen.keda:
        return _scaled_object(target, chosen, chosen.keda)
    return _hpa(target, chosen, chosen.hpa or Hpa())


def _scaled_resource(target: Target) -> dict[str, str]:
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": target.name}


def _behavior(chosen: Autoscaling) -> dict[str, Any]:
    return {
        "scaleDown": {"stabilizationWindowSeconds": chosen.scale_down_stabilization_seconds},
    }


def _hpa(target: Target, chosen: Autoscaling, hpa: Hpa) -> dict[str, Any]:
    # Of the worker alone: the sidecar waits for it, and its share would hide what the worker needs.
    cpu: list[dict[str, Any]] = [
        {
            "type": "ContainerResource",
            "containerResource": {
                "name": "cpu",
                "container": names.WORKER_CONTAINER,
                "target": {"type": "Utilization", "averageUtilization": share},
            },
        }
        for share in (hpa.cpu_utilization_percent,)
        if share is not None
    ]
    pods = [
        {
            "type": "Pods",
            "pods": {
                "metric": {"name": metric.name},
                "target": {"type": "AverageValue", "averageValue": metric.average_value},
            },
        }
        for metric in hpa.pod_metrics
    ]
    return {
        "apiVersion": "autoscaling/v2",
        "kind": HPA,
        "metadata": target.metadata(),
        "spec": {
            "scaleTargetRef": _scaled_resource(target),
            "minReplicas": chosen.min_replicas,
            "maxReplicas": chosen.max_replicas,
            "behavior": _behavior(chosen),
            "metrics": cpu + pods,
        },
    }


def _trigger(prometheus: PrometheusTrigger) -> dict[str, Any]:
    activation = prometheus.activation_threshold
    login = prometheus.authentication
    return {
        "type": "prometheus",
        "metadata": {
            "serverAddress": prometheus.server_address,
            "query": prometheus.query,
            "threshold": _number(prometheus.threshold),
            **({"activationThreshold": _number(activation)} if activation else {}),
            **({"authModes": login.mode} if login else {}),
        },
        **({"authenticationRef": {"name": login.name}} if login else {}),
    }


def _number(amount: str) -> str:
    """A quantity as KEDA reads it: without a suffix."""
    exact = quantity.parse(amount)
    return f"{(Decimal(exact.numerator) / Decimal(exact.denominator)).normalize():f}"


def _scaled_object(target: Target, chosen: Autoscaling, keda: Keda) -> dict[str, Any]:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": SCALED_OBJECT,
        "metadata": target.metadata(),
        "spec": {
            "scaleTargetRef": _scaled_resource(target),
            "minReplicaCount": chosen.min_replicas,
            "maxReplicaCount": chosen.max_replicas,
            "pollingInterval": keda.polling_seconds,
            "cooldownPeriod": keda.cooldown_seconds,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(chosen)}},
            "triggers": [_trigger(item) for item in keda.prometheus],
        },
    }
