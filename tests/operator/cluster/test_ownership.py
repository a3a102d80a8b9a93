"""Whose is what: orphans, other people's labels, namespaces that go, and CRDs of another age."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from chiasm_contract.api.crd import crd as make_crd

pytestmark = pytest.mark.cluster

World = Any  # the Namespace of conftest.py
Eventually = Callable[..., None]
Run = Callable[..., str]

ROOT = Path(__file__).resolve().parents[3]
CRD = "multimodalinferences.chiasm.dev"
KNOWN_ONCE = ("model", "replicas", "podTemplate")
NOT_FOUND = 404


def ready(world: World, name: str) -> bool:
    return bool(world.condition(name, "Ready").get("status") == "True")


def served(world: World, name: str, eventually: Eventually, **spec: Any) -> None:
    world.apply(name, replicas=2, **spec)
    eventually(lambda: ready(world, name), f"{name} should become Ready")


def pods(world: World, name: str) -> set[str]:
    chosen = f"labelSelector=chiasm.dev/name%3D{name}"
    found = world.get(f"/api/v1/namespaces/{world.name}/pods?{chosen}")["items"]
    return {item["metadata"]["uid"] for item in found}


def uids(world: World, name: str) -> dict[Any, str]:
    return {key: item["metadata"]["uid"] for key, item in world.children(name).items()}


def test_orphans_are_adopted_and_nothing_restarts(
    calm: World, name: str, eventually: Eventually
) -> None:
    served(calm, name, eventually)
    before = uids(calm, name), pods(calm, name)
    calm.delete(calm.path(name), propagationPolicy="Orphan")
    eventually(
        lambda: calm.api.get(calm.path(name)).status_code == NOT_FOUND, "the resource should go"
    )
    assert (uids(calm, name), pods(calm, name)) == before
    served(calm, name, eventually)
    mine = calm.get(calm.path(name))["metadata"]["uid"]

    def adopted() -> bool:
        owners = [item["metadata"].get("ownerReferences") for item in calm.children(name).values()]
        return all(refs and [ref["uid"] for ref in refs] == [mine] for refs in owners)

    eventually(adopted, "every child should have the new owner")
    assert (uids(calm, name), pods(calm, name)) == before
    calm.delete(calm.path(name))


def test_what_others_add_is_theirs(calm: World, name: str, eventually: Eventually) -> None:
    """A GitOps tool's labels on the resource, a user's own on each child, across a new revision."""
    served(calm, name, eventually)
    theirs = {
        "labels": {"argocd.argoproj.io/instance": "shop", "team": "vision"},
        "annotations": {"example.com/note": "keep"},
    }
    # A Deployment and its like: a ConfigMap goes with its revision.
    lasting = [key for key in calm.children(name) if key[0] != "ConfigMap"]
    paths = [calm.path(name), *(calm.child(*key) for key in lasting)]
    for path in paths:
        calm.patch(path, {"metadata": theirs})
    before = calm.status(name)["revision"]
    calm.apply(name, replicas=3, engine={"maxNumSeqs": 5})
    eventually(
        lambda: calm.status(name)["revision"] != before and ready(calm, name),
        "the new revision should be rolled out",
    )
    for path in paths:
        metadata = calm.get(path)["metadata"]
        for kind, values in theirs.items():
            assert values.items() <= metadata[kind].items(), path
    calm.delete(calm.path(name))


def test_a_namespace_goes_with_all_that_is_in_it(
    own_world: World, own_operator: Any, name: str, eventually: Eventually
) -> None:
    own_operator.start()
    served(own_world, name, eventually)
    path = f"/api/v1/namespaces/{own_world.name}"
    own_world.delete(path)
    eventually(lambda: own_world.api.get(path).status_code == NOT_FOUND, "the namespace should go")
    assert "Traceback" not in own_operator.log


@pytest.fixture
def alone(api: httpx.Client, crd: None) -> None:
    """No resource of somebody else is in the cluster: what follows would not spare it."""
    found = api.get(f"/apis/chiasm.dev/v1alpha1/{CRD.partition('.')[0]}").json()["items"]
    ours = ("calm-", "trouble-", "test-")
    others = [item for item in found if not item["metadata"]["namespace"].startswith(ours)]
    if others:
        pytest.skip("the cluster holds resources that are not of these tests")


@pytest.fixture
def older_crd(kubectl: Run, alone: None) -> Iterator[None]:
    """A definition that knew a few fields and no defaults of others; the present one afterwards."""
    definition = copy.deepcopy(make_crd())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"]
    spec["properties"] = {key: spec["properties"][key] for key in KNOWN_ONCE}
    spec["properties"]["podTemplate"]["properties"] = {
        "nodeSelector": spec["properties"]["podTemplate"]["properties"]["nodeSelector"]
    }
    spec["properties"]["podTemplate"].pop("default")
    spec.pop("x-kubernetes-validations")
    kubectl("replace", "-f", "-", stdin=yaml.safe_dump(definition))
    yield
    newer(kubectl)


def newer(kubectl: Run) -> None:
    """As the documentation says that it is done before `helm upgrade`."""
    crds = str(ROOT / "charts" / "chiasm" / "crds")
    kubectl("apply", "--server-side", "--force-conflicts", "-f", crds)


def test_what_an_older_crd_stored_is_served_under_a_newer(
    own_world: World,
    own_operator: Any,
    older_crd: None,
    kubectl: Run,
    name: str,
    eventually: Eventually,
) -> None:
    def stored() -> bool:  # the API server takes up a new schema within moments
        known = own_world.apply(name, replicas=2)["spec"].keys()
        return bool(known == set(KNOWN_ONCE))

    eventually(stored, "the older definition should store no more than it knows")
    own_operator.start()
    eventually(lambda: ready(own_world, name), "a newer operator should serve it")
    before = own_world.status(name)["revision"], pods(own_world, name)
    newer(kubectl)
    eventually(
        lambda: own_world.get(own_world.path(name))["spec"].get("rollout", {}).get("maxSurge") == 1,
        "the newer definition should show its defaults",
    )
    own_world.patch(own_world.path(name), {"metadata": {"labels": {"touched": "true"}}})
    own_world.delete(own_world.child("Service", name))
    eventually(
        lambda: ("Service", name) in own_world.children(name) and ready(own_world, name),
        "the operator should be at work",
    )
    assert (own_world.status(name)["revision"], pods(own_world, name)) == before


def test_nothing_is_stuck_when_all_is_uninstalled(
    calm: World, operator: Any, alone: None, kubectl: Run, name: str, eventually: Eventually
) -> None:
    """The operator first, then the definition with resources left: no finalizer holds them."""
    served(calm, name, eventually)
    operator.kill()
    try:
        kubectl("delete", "crd", CRD, "--timeout=60s")
        eventually(lambda: not calm.children(name), "children should go with their owner")
        eventually(lambda: not pods(calm, name), "pods too")
    finally:
        newer(kubectl)
        kubectl("wait", "--for=condition=Established", f"crd/{CRD}")
        operator.start()
    served(calm, name, eventually)
    calm.delete(calm.path(name))
