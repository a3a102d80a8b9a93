"""Autoscalers at a real API server: they write `replicas`, the operator follows, none undoes it.

There is no metrics-server: a HorizontalPodAutoscaler lifts what is below its minimum without one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

World = Any  # the Namespace of conftest.py
Eventually = Callable[..., None]

KEDA_CRD = Path(__file__).resolve().parents[1] / "keda" / "keda.sh_scaledobjects.yaml"
BY_CPU = {"cpuUtilizationPercent": 70}
BY_QUEUE = {
    "prometheus": [
        {
            "serverAddress": "http://prometheus.monitoring.svc:9090",
            "query": "sum(vllm:num_requests_waiting)",
            "threshold": 8,
        }
    ]
}


def replicas(world: World, name: str) -> tuple[int, int]:
    """What the resource asks for, and what its pods are."""
    resource = world.get(world.path(name))
    return resource["spec"]["replicas"], resource.get("status", {}).get("updatedReplicas", 0)


def own_autoscaler(name: str) -> dict[str, Any]:
    target = {"apiVersion": "chiasm.dev/v1alpha1", "kind": "MultimodalInference", "name": name}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
    spec = {
        "scaleTargetRef": target,
        "minReplicas": 3,
        "maxReplicas": 5,
        "metrics": [{"type": "Resource", "resource": cpu}],
    }
    return {"metadata": {"name": f"{name}-own"}, "spec": spec}


def test_autoscalers_set_replicas_and_nobody_undoes_it(
    calm: World, name: str, eventually: Eventually
) -> None:
    """One that `spec.autoscaling` asks for, and one of the user's own."""
    asked, own = f"{name}-asked", f"{name}-own"
    autoscaling = {"minReplicas": 3, "maxReplicas": 5, "hpa": BY_CPU}
    calm.apply(asked, autoscaling=autoscaling)
    calm.apply(own)
    collection = calm.child("HorizontalPodAutoscaler", "").rstrip("/")
    calm.api.post(collection, json=own_autoscaler(own)).raise_for_status()
    for each in (asked, own):
        eventually(
            lambda each=each: replicas(calm, each) == (3, 3), f"{each} should have three pods"
        )
    for again in ({"autoscaling": autoscaling}, {}):
        each = asked if again else own
        calm.apply(each, config={"logLevel": "debug"}, **again)
        eventually(
            lambda each=each: calm.status(each)["ready"] == "3/3", "a new revision has three too"
        )
        assert replicas(calm, each) == (3, 3)
    eventually(
        lambda: "metrics-server" in calm.condition(asked, "Autoscaled").get("message", ""),
        "what the autoscaler lacks should be told",
    )
    assert calm.condition(asked, "Degraded")["status"] == "False"
    assert not calm.condition(own, "Autoscaled")

    calm.apply(asked, autoscaling=autoscaling, replicas=3)
    eventually(
        lambda: calm.condition(asked, "Autoscaled").get("reason") == "ReplicasContested",
        "a manifest that holds replicas too should be told",
    )
    calm.apply(asked, replicas=3)
    gone = ("HorizontalPodAutoscaler", asked)
    eventually(lambda: gone not in calm.children(asked), "its autoscaler should go")
    assert replicas(calm, asked)[0] == 3
    for each in (asked, own):
        calm.delete(calm.path(each))


def test_kubectl_apply_contests_only_what_its_manifest_says(
    calm: World, name: str, kubectl: Callable[..., str], eventually: Eventually
) -> None:
    """Whoever creates a resource without `replicas` owns the default of it, as the API sees it."""

    def apply(**spec: Any) -> None:
        manifest = {
            "apiVersion": "chiasm.dev/v1alpha1",
            "kind": "MultimodalInference",
            "metadata": {"name": name, "namespace": calm.name},
            "spec": {
                "model": {"source": {"builtin": "demo"}},
                "podTemplate": {"nodeSelector": {"chiasm.dev/no-such-node": "true"}},
                "autoscaling": {"maxReplicas": 5, "hpa": BY_CPU},
                **spec,
            },
        }
        kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def told(words: str) -> bool:
        return words in calm.condition(name, "Autoscaled").get("message", "")

    apply()
    eventually(lambda: told("metrics-server"), "what the autoscaler lacks should be told")
    apply(replicas=2)
    eventually(lambda: told("kubectl-client-side-apply"), "who has replicas too should be told")
    apply()
    eventually(lambda: told("metrics-server"), "it should be forgotten with the number")
    calm.delete(calm.path(name))


@pytest.fixture
def uninstalled(kubectl: Callable[..., str]) -> Iterator[None]:
    yield
    kubectl("delete", "--ignore-not-found", "-f", str(KEDA_CRD))


def test_keda_takes_what_is_made_for_it(
    calm: World,
    name: str,
    uninstalled: None,
    kubectl: Callable[..., str],
    eventually: Eventually,
) -> None:
    calm.apply(name, autoscaling={"minReplicas": 0, "maxReplicas": 5, "keda": BY_QUEUE})
    eventually(
        lambda: calm.condition(name, "Autoscaled").get("reason") == "KedaNotInstalled",
        "that there is no KEDA should be told",
    )
    eventually(lambda: calm.condition(name, "Ready").get("status") == "True", "pods serve alone")
    assert calm.condition(name, "Degraded")["status"] == "False"
    kubectl("apply", "--server-side", "-f", str(KEDA_CRD))
    path = f"/apis/keda.sh/v1alpha1/namespaces/{calm.name}/scaledobjects/{name}"
    eventually(lambda: calm.api.get(path).is_success, "KEDA's API should take the object")
    made = calm.get(path)
    assert made["spec"]["scaleTargetRef"]["kind"] == "MultimodalInference"
    eventually(
        lambda: calm.condition(name, "Autoscaled").get("reason") == "NotReported",
        "it waits for KEDA's word",
    )
    calm.apply(name)
    eventually(lambda: not calm.api.get(path).is_success, "what is no longer wanted should go")
    calm.delete(calm.path(name))
