"""Placement at a real API server and scheduler: every field is taken, a GPU that is there is found.

Devices are only said to be there (a node's capacity, a ResourceSlice): no container uses one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.cluster

World = Any  # the Namespace of conftest.py
Eventually = Callable[..., None]
Run = Callable[..., str]

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
DRA = "/apis/resource.k8s.io/v1"


@pytest.mark.parametrize("example", ["minimal", "complete", "claim", "autoscaled", "sharing"])
def test_the_api_server_takes_every_child(example: str, namespace: str, kubectl: Run) -> None:
    made = list(yaml.safe_load_all((GOLDEN / f"children-{example}.yaml").read_text()))
    # Kinds that this cluster does not know: see test_autoscaling.py and make e2e-gateway.
    known = [item for item in made if item["kind"] not in {"ScaledObject", "HTTPRoute"}]
    for item in known:
        item["metadata"]["namespace"] = namespace
    said = kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-",
        stdin=yaml.safe_dump_all(known),
    )  # fmt: skip
    assert said.count("serverside-applied") == len(known)


def placed(world: World, name: str) -> bool:
    """Whether a pod of the resource has a node."""
    chosen = f"labelSelector=chiasm.dev/name%3D{name}"
    pods = world.get(f"/api/v1/namespaces/{world.name}/pods?{chosen}")["items"]
    return any(pod["spec"].get("nodeName") for pod in pods)


def reason(world: World, name: str) -> str | None:
    found: str | None = world.condition(name, "Degraded").get("reason")
    return found


@pytest.fixture
def node(trouble: World) -> str:
    (only,) = trouble.get("/api/v1/nodes")["items"]
    return str(only["metadata"]["name"])


def test_a_counted_gpu_is_found_once_a_node_has_it(
    trouble: World, node: str, name: str, eventually: Eventually
) -> None:
    resource = {"type": "nvidia", "resourceName": "example.com/gpu"}
    trouble.apply(name, podTemplate={}, resources={"device": resource})
    eventually(lambda: reason(trouble, name) == "InsufficientGPU", "its lack should be told")
    path = f"/api/v1/nodes/{node}/status"
    amount = {"example.com/gpu": "1"}
    trouble.patch(path, {"status": {"capacity": amount, "allocatable": amount}})
    try:
        eventually(lambda: placed(trouble, name), "the pod should get its place")
    finally:
        nothing = {"example.com/gpu": None}
        trouble.patch(path, {"status": {"capacity": nothing, "allocatable": nothing}})
        trouble.delete(trouble.path(name))


@pytest.fixture
def device_class(trouble: World) -> Iterator[str]:
    """A class of devices with no device yet, and a template that asks for one of them."""
    name = f"{trouble.name}.example.com"
    expression = f"device.driver == '{name}'"
    body = {
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }
    trouble.api.post(f"{DRA}/deviceclasses", json=body).raise_for_status()
    request = {"name": "gpu", "exactly": {"deviceClassName": name}}
    template = {"metadata": {"name": "one"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    templates = f"{DRA}/namespaces/{trouble.name}/resourceclaimtemplates"
    trouble.api.post(templates, json=template).raise_for_status()
    yield name
    trouble.delete(f"{DRA}/resourceslices/{name}")
    trouble.delete(f"{templates}/one")
    trouble.delete(f"{DRA}/deviceclasses/{name}")


def test_a_claimed_gpu_is_found_once_a_driver_offers_it(
    trouble: World, node: str, device_class: str, name: str, eventually: Eventually
) -> None:
    device = {"type": "nvidia", "claimTemplateName": "one"}
    trouble.apply(name, podTemplate={}, resources={"device": device})
    eventually(
        lambda: (
            reason(trouble, name) == "InsufficientGPU"
            and "'one'" in trouble.condition(name, "Degraded")["message"]
        ),
        "its lack should be told",
    )
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": device_class, "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}]}
    offered = {"metadata": {"name": device_class}, "spec": spec}
    trouble.api.post(f"{DRA}/resourceslices", json=offered).raise_for_status()
    try:
        eventually(lambda: placed(trouble, name), "the pod should get its place")
    finally:
        trouble.delete(trouble.path(name))
