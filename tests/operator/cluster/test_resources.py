"""The operator against a real API server and its controllers: made, kept, changed, removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

World = Any  # the Namespace of conftest.py
Eventually = Callable[..., None]

KINDS = {
    "ServiceAccount", "Service", "Deployment", "ConfigMap", "ControllerRevision",
    "PodDisruptionBudget", "NetworkPolicy",
}  # fmt: skip


def kinds(world: World, name: str) -> set[str]:
    return {kind for kind, _ in world.children(name)}


def first(world: World, owner: str, kind: str) -> str:
    """Name of the owner's child of that kind; of its ConfigMaps the one with its files."""
    return str(
        next(
            child
            for each, child in world.children(owner)
            if each == kind and not child.endswith("-traffic")
        )
    )


def ready(world: World, name: str) -> bool:
    return bool(world.condition(name, "Ready").get("status") == "True")


@pytest.fixture
def world(calm: World) -> World:
    return calm


@pytest.fixture
def served(world: World, name: str, eventually: Eventually) -> Iterator[str]:
    """A resource that is up."""
    world.apply(name, replicas=2)
    eventually(lambda: ready(world, name), f"{name} should become Ready")
    yield name
    world.delete(world.path(name))


@pytest.fixture
def own_served(own_world: World, own_operator: Any, name: str, eventually: Eventually) -> str:
    """A resource that is up, served by an operator that may be killed."""
    own_operator.start()
    own_world.apply(name, replicas=2)
    eventually(lambda: ready(own_world, name), f"{name} should become Ready")
    return name


def test_it_is_made_and_said(world: World, served: str, eventually: Eventually) -> None:
    assert kinds(world, served) == KINDS
    resource = world.get(world.path(served))
    status = resource["status"]
    assert status["observedGeneration"] == resource["metadata"]["generation"]
    assert status["phase"] == "Healthy"
    assert status["url"] == f"http://{served}.{world.name}.svc:8000"
    assert (status["replicas"], status["readyReplicas"], status["ready"]) == (2, 2, "2/2")
    assert status["revision"].startswith("v1-")
    config = world.children(served)["ConfigMap", f"{served}-{status['revision']}"]
    assert set(config["data"]) == {"worker.json", "sidecar.json"}
    expected = {"RolloutInProgress", "AllReplicasReady"}
    eventually(lambda: expected <= world.reasons(served), f"events should tell {expected}")
    reasons = [event["reason"] for event in world.events(served)]
    assert sorted(reasons) == sorted(set(reasons)), "an event is told once"


def test_nothing_of_kopf_is_left_in_the_resource(world: World, served: str) -> None:
    metadata = world.get(world.path(served))["metadata"]
    assert "finalizers" not in metadata
    assert "annotations" not in metadata


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_deleted_child_comes_back(
    kind: str, world: World, served: str, eventually: Eventually
) -> None:
    name = first(world, served, kind)
    before = world.children(served)[kind, name]["metadata"]["uid"]
    world.delete(world.child(kind, name))

    def back() -> bool:
        now = world.children(served).get((kind, name))
        return now is not None and now["metadata"]["uid"] != before

    eventually(back, f"{kind} should be made again")


@pytest.mark.parametrize(
    ("kind", "change", "field"),
    [
        ("Deployment", {"spec": {"replicas": 7}}, ("spec", "replicas")),
        ("Service", {"spec": {"selector": {"chiasm.dev/name": "other"}}}, ("spec", "selector")),
        ("PodDisruptionBudget", {"spec": {"maxUnavailable": 2}}, ("spec", "maxUnavailable")),
        ("NetworkPolicy", {"spec": {"egress": [{}]}}, ("spec", "egress")),
        (
            "ServiceAccount",
            {"automountServiceAccountToken": True},
            ("automountServiceAccountToken",),
        ),
        ("ConfigMap", {"data": {"worker.json": "{}"}}, ("data", "worker.json")),
    ],
)
def test_a_child_changed_by_hand_is_healed(
    kind: str,
    change: dict[str, Any],
    field: tuple[str, ...],
    world: World,
    served: str,
    eventually: Eventually,
) -> None:
    name = first(world, served, kind)

    def value() -> Any:
        node: Any = world.children(served)[kind, name]
        for key in field:
            node = node.get(key)
            if node is None:
                return None
        return node

    before = value()
    world.patch(world.child(kind, name), change)
    eventually(lambda: value() == before, f"{kind} should be healed")


def test_scaling_through_the_subresource(world: World, served: str, eventually: Eventually) -> None:
    world.patch(f"{world.path(served)}/scale", {"spec": {"replicas": 3}})
    eventually(lambda: world.status(served)["ready"] == "3/3", "three pods should be ready")
    scale = world.get(f"{world.path(served)}/scale")
    assert scale["status"]["replicas"] == 3
    assert f"chiasm.dev/name={served}" in scale["status"]["selector"]


def test_it_is_not_ready_while_a_pod_keeps_crashing(
    world: World, served: str, eventually: Eventually
) -> None:
    """As a kubelet reports it: up, ready, and for the fourth time within minutes."""
    chosen = f"labelSelector=chiasm.dev/name%3D{served}"
    pod = world.get(f"/api/v1/namespaces/{world.name}/pods?{chosen}")["items"][0]["metadata"]
    now = datetime.now(UTC)
    moments = {"startedAt": now - timedelta(seconds=90), "finishedAt": now - timedelta(seconds=30)}
    terminated = {
        "exitCode": 1,
        "reason": "Error",
        **{key: moment.strftime("%Y-%m-%dT%H:%M:%SZ") for key, moment in moments.items()},
    }
    status = {
        "name": "worker",
        "image": "example.invalid/worker:1",
        "imageID": "",
        "ready": True,
        "started": True,
        "restartCount": 3,
        "state": {"running": {"startedAt": terminated["finishedAt"]}},
        "lastState": {"terminated": terminated},
    }
    path = f"/api/v1/namespaces/{world.name}/pods/{pod['name']}/status"
    world.patch(path, {"status": {"containerStatuses": [status]}})
    eventually(
        lambda: world.condition(served, "Ready").get("reason") == "CrashLoop",
        "a ready pod that keeps crashing makes nothing Ready",
    )
    assert world.condition(served, "Serving")["status"] == "True"


def test_a_new_revision_replaces_the_old_and_its_config(
    world: World, served: str, eventually: Eventually
) -> None:
    before = world.status(served)["revision"]
    world.apply(served, replicas=1, engine={"maxNumSeqs": 3})

    def replaced() -> bool:
        revision = world.status(served)["revision"]
        configs = {name for kind, name in world.children(served) if kind == "ConfigMap"}
        alone = configs == {f"{served}-{revision}", f"{served}-traffic"}
        return revision != before and ready(world, served) and alone

    eventually(replaced, "the old revision's ConfigMap should be pruned")
    assert kinds(world, served) == KINDS - {"PodDisruptionBudget"}, "one pod needs no budget"


def test_a_restart_rolls_nothing(
    own_world: World, own_served: str, own_operator: Any, eventually: Eventually
) -> None:
    def versions() -> dict[Any, str]:
        children = own_world.children(own_served).items()
        return {key: item["metadata"]["resourceVersion"] for key, item in children}

    def policy_is_there() -> bool:
        return "NetworkPolicy" in kinds(own_world, own_served)

    before = versions()
    own_operator.kill()
    own_operator.start()
    own_world.delete(own_world.child("NetworkPolicy", own_served))
    eventually(policy_is_there, "the restarted operator should be at work")
    after = versions()
    del before["NetworkPolicy", own_served], after["NetworkPolicy", own_served]
    assert after == before


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_deletion_cascades_and_nothing_comes_back(
    policy: str, world: World, served: str, eventually: Eventually
) -> None:
    world.delete(world.path(served), propagationPolicy=policy)
    eventually(lambda: not world.children(served), "every child should go")
    gone = 404
    eventually(lambda: world.api.get(world.path(served)).status_code == gone, "it should go too")


def test_deletion_needs_no_operator(
    own_world: World, own_served: str, own_operator: Any, eventually: Eventually
) -> None:
    own_operator.kill()
    own_world.delete(own_world.path(own_served))
    eventually(lambda: not own_world.children(), "every child should go")


def test_a_name_can_be_used_again_at_once(
    world: World, served: str, eventually: Eventually
) -> None:
    first = world.get(world.path(served))["metadata"]["uid"]
    world.delete(world.path(served))
    second = world.apply(served, replicas=2)["metadata"]["uid"]
    assert first != second

    def taken_over() -> bool:
        owners = {
            item["metadata"]["ownerReferences"][0]["uid"]
            for item in world.children(served).values()
        }
        return owners == {second} and kinds(world, served) == KINDS and ready(world, served)

    eventually(taken_over, "the new resource should get children of its own")
