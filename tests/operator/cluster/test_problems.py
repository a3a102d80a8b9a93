"""What does not exist or is refused ends in a condition and an event that name it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

TENANTS = {
    "keysSecret": {"name": "no-such-secret"},
    "serverKeySecret": {"name": "no-such-key"},
}
World = Any  # the Namespace of conftest.py
Eventually = Callable[..., None]


@pytest.fixture
def world(trouble: World, name: str) -> Iterator[World]:
    yield trouble
    trouble.delete(trouble.path(name))


def told(world: World, name: str, reason: str, words: str) -> bool:
    """Condition and event both name it."""
    degraded = world.condition(name, "Degraded")
    ready = world.condition(name, "Ready")
    warnings = [
        event["message"]
        for event in world.events(name)
        if event["type"] == "Warning" and event["reason"] == reason
    ]
    return bool(
        (degraded.get("status"), degraded.get("reason")) == ("True", reason)
        and (ready.get("status"), ready.get("reason")) == ("False", reason)
        and words in degraded["message"]
        and any(words in message for message in warnings)
    )


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"podTemplate": {}}, "ImagePullFailed", "example.invalid/"),
        (
            {"podTemplate": {}, "model": {"source": {"path": {"claimName": "no-such-claim"}}}},
            "ClaimNotFound",
            "PersistentVolumeClaim 'no-such-claim' (spec.model.source.path.claimName)",
        ),
        (
            {
                "podTemplate": {},
                "model": {"source": {"image": {"reference": "example.invalid/models/none:1"}}},
            },
            "ImagePullFailed",
            "Image 'example.invalid/models/none:1' (spec.model.source.image.reference)",
        ),
        (
            {"podTemplate": {}, "tenants": TENANTS},
            "SecretNotFound",
            "Secret 'no-such-",  # of two that are missing the kubelet names either
        ),
        ({}, "NodeMismatch", "label a node"),
        (
            {"podTemplate": {}, "resources": {"device": {"type": "nvidia"}}},
            "InsufficientGPU",
            "No node has a free nvidia.com/gpu",
        ),
        (
            {
                "podTemplate": {},
                "resources": {"device": {"type": "nvidia", "claimTemplateName": "no-such"}},
            },
            "ClaimNotFound",
            "ResourceClaimTemplate 'no-such' (spec.resources.device.claimTemplateName)",
        ),
        (
            {"podTemplate": {}, "resources": {"requests": {"memory": "900Gi"}}},
            "Unschedulable",
            "Insufficient memory",
        ),
        (
            {"podTemplate": {"affinity": {"nodeAffinity": {"turbo": True}}}},
            "ChildRefused",
            "turbo",
        ),
        (
            {"podTemplate": {"priorityClassName": "no-such-class"}},
            "PodsRefused",
            "no-such-class",
        ),
    ],
    ids=[
        "image", "claim", "model image", "secret", "node", "gpu", "device claim", "memory",
        "affinity", "priority class",
    ],
)  # fmt: skip
def test_what_is_missing_is_named(
    spec: dict[str, Any],
    reason: str,
    words: str,
    world: World,
    name: str,
    eventually: Eventually,
) -> None:
    world.apply(name, **spec)
    eventually(
        lambda: told(world, name, reason, words),
        f"{reason} with {words!r} should be told",
    )
    assert world.status(name)["phase"] == "Degraded"


def in_the_way(world: World) -> dict[str, tuple[str, dict[str, Any], str, str]]:
    """What a platform may have put in a pod's way: path, object, reason, words."""
    here = {"kubernetes.io/metadata.name": world.name}
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    core, admission = f"/api/v1/namespaces/{world.name}", "/apis/admissionregistration.k8s.io/v1"
    claim = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    silent = {
        "name": "pods.policy.example.com",
        "clientConfig": {"service": {"namespace": world.name, "name": "no-such-service"}},
        "rules": [{**pods, "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": here},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "quota": (
            f"{core}/resourcequotas",
            {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "0"}}},
            "QuotaExceeded",
            "ResourceQuota 'team' has no room: requested: pods=1",
        ),
        "claim": (
            f"{core}/persistentvolumeclaims",
            {"metadata": {"name": "models"}, "spec": claim},
            "ClaimNotBound",
            "storage class",
        ),
        "webhook": (
            f"{admission}/validatingwebhookconfigurations",
            {"metadata": {"name": world.name}, "webhooks": [silent]},
            "PodRefusedByWebhook",
            "while admission webhook 'pods.policy.example.com' does not answer",
        ),
    }


@pytest.mark.parametrize("what", ["quota", "claim", "webhook"])
def test_what_a_platform_put_in_the_way_is_named(
    what: str, world: World, name: str, eventually: Eventually
) -> None:
    path, body, reason, words = in_the_way(world)[what]
    world.api.post(path, json=body).raise_for_status()
    try:
        source = {"path": {"claimName": "models"}} if what == "claim" else {"builtin": "demo"}
        world.apply(name, podTemplate={}, model={"source": source})
        eventually(lambda: told(world, name, reason, words), f"{reason} should be told")
    finally:
        world.delete(f"{path}/{body['metadata']['name']}")


def test_a_taint_is_named(world: World, name: str, eventually: Eventually) -> None:
    (node,) = world.get("/api/v1/nodes")["items"]
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    taint = {"key": "dedicated", "value": "training", "effect": "NoSchedule"}
    world.patch(path, {"spec": {"taints": [taint]}})
    try:
        world.apply(name, podTemplate={})
        eventually(
            lambda: told(world, name, "UntoleratedTaint", "spec.podTemplate.tolerations"),
            "the taint should be told",
        )
        tolerated = {"key": "dedicated", "operator": "Exists"}
        world.apply(name, podTemplate={"tolerations": [tolerated]})
        eventually(
            lambda: world.condition(name, "Degraded").get("reason") == "ImagePullFailed",
            "a pod that tolerates it should come as far as its image",
        )
    finally:
        world.patch(path, {"spec": {"taints": node["spec"].get("taints")}})


def revision_of_a_twin(world: World, name: str, eventually: Eventually) -> str:
    """What a resource with the same spec is called by; names are no part of it."""
    twin = f"{name}-twin"
    world.apply(twin)
    eventually(lambda: world.status(twin).get("revision"), "the revision should be told")
    revision: str = world.status(twin)["revision"]
    world.delete(world.path(twin))
    return revision


def test_a_deployment_with_another_selector_says_what_to_do(
    world: World, name: str, eventually: Eventually
) -> None:
    """Left by somebody who deleted the resource and kept its children, then changed one."""
    deployment = f"{name}-{revision_of_a_twin(world, name, eventually)}"
    ours = {"chiasm.dev/name": name, "app.kubernetes.io/managed-by": "chiasm-operator"}
    template = {
        "metadata": {"labels": {"app": "other"}},
        "spec": {"containers": [{"name": "other", "image": "example.invalid/other"}]},
    }
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "other"}}, "template": template}
    body = {"metadata": {"name": deployment, "labels": ours}, "spec": spec}
    path = world.child("Deployment", deployment)
    world.api.post(path.rpartition("/")[0], json=body).raise_for_status()
    world.apply(name)
    eventually(
        lambda: told(world, name, "ImmutableField", f"kubectl delete deployment {deployment}"),
        "the field that cannot change should be told",
    )
    world.delete(path)
    eventually(
        lambda: world.condition(name, "Degraded").get("reason") == "NodeMismatch",
        "what the message says should help",
    )


def test_a_foreign_service_is_left_alone_and_named(
    world: World, name: str, eventually: Eventually
) -> None:
    path = f"/api/v1/namespaces/{world.name}/services"
    body = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}
    mine = world.api.post(path, json=body).json()
    world.apply(name)
    eventually(
        lambda: told(world, name, "NameTaken", f"Service {name!r} exists"),
        "the name should be reported",
    )
    assert world.get(f"{path}/{name}")["spec"] == mine["spec"]
    world.delete(f"{path}/{name}")
    eventually(lambda: ("Service", name) in world.children(), "a freed name should be used")


def test_an_invalid_stored_spec_is_named(world: World, name: str, eventually: Eventually) -> None:
    # The API server takes any number of bytes from 1Mi up; half a byte is found by the operator.
    world.apply(name, engine={"kvCacheBytes": "1048577.5"})
    eventually(
        lambda: told(world, name, "InvalidSpec", "not a whole number of bytes"),
        "the field should be named",
    )
    world.apply(name, engine={"kvCacheBytes": "2Mi"})
    eventually(
        lambda: (
            world.condition(name, "Ready").get("reason") != "InvalidSpec"
            and any(
                kind == "Deployment" and child.startswith(name) for kind, child in world.children()
            )
        ),
        "a mended spec should be served",
    )
