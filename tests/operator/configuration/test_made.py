"""What a pass makes for sources beside pods: the key of their names, and others' objects."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from typing import Any

import pytest
from chiasm_contract import names
from chiasm_contract.conditions import Reason
from chiasm_operator.cluster import DELIVERY_KINDS, Cluster
from chiasm_operator.leadership.fence import Fence
from chiasm_operator.reconcile.diagnosis import refusals
from chiasm_operator.reconcile.diagnosis.pods import diagnose
from chiasm_operator.reconcile.observed import Observed, key_of
from chiasm_operator.render import Target
from chiasm_operator.render.configuration import digest
from chiasm_operator.resource import kind_of
from kubernetes_asyncio import client

from tests.operator.conftest import decision_of
from tests.operator.render.rendered import load_tool
from tests.operator.rollout.made_up.scenarios import configured, spec
from tests.operator.rollout.made_up.world import World
from tests.operator.test_children import plan

MakeTarget = Callable[..., Target]


def test_the_key_is_made_before_pods_and_never_changed() -> None:
    world = World()
    configured(1)(world)
    world.settled()
    (name,) = world.secrets
    created = world.writes.index(f"create Secret {name}")
    assert created < min(i for i, what in enumerate(world.writes) if "apply Deployment" in what)
    first = copy.deepcopy(world.secrets[name])
    assert first["immutable"] is True
    assert len(base64.b64decode(first["data"][names.CONFIG_DIGEST_KEY])) == 32
    assert first["metadata"]["ownerReferences"][0]["controller"] is True
    configured(2)(world)
    world.settled()
    assert world.secrets == {name: first}


def test_nothing_is_made_where_there_are_no_sources() -> None:
    world = World()
    spec(1)(world)
    world.settled()
    assert not world.secrets


def test_a_key_that_is_refused_is_told() -> None:
    world = World()
    configured(1)(world)
    world.refused = {("Secret", f"{world.resource['metadata']['name']}-digest")}
    world.surviving_pass()
    assert world.condition("Degraded") == "True ChildRefused"


def test_a_key_has_its_length(make_target: MakeTarget) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        digest.render(make_target(), b"short")


@pytest.fixture
def delivered(
    make_target: MakeTarget, load_example: Callable[[str], dict[str, Any]]
) -> Callable[..., Target]:
    """The example of environments by a delivery, its sections updated by keyword."""

    def make(by: str, **sections: Any) -> Target:
        body = load_tool("golden_files").by(load_example("environments"), by)
        return make_target("environments", **(body["spec"] | sections))

    return make


@pytest.mark.parametrize("by", ["external-secrets", "vso", "csi"])
def test_objects_go_with_their_revision(
    by: str, delivered: Callable[..., Target], make_observed: Callable[..., Observed]
) -> None:
    target = delivered(by)
    observed = make_observed(target)
    objects = [item for item in observed.children if kind_of(item) in KINDS]
    assert objects
    assert plan(target, observed).delete == ()
    # Another revision stands alone: nothing reads what the first one was given.
    other = delivered("direct")
    after = make_observed(other)
    both = Observed((*after.children, *objects), states=after.states)
    decision = decision_of(other, both)
    assert set(decision.replicas) == {other.revision}
    assert {key_of(item) for item in objects} <= set(plan(other, both).delete)


KINDS = {kind.key for kind in DELIVERY_KINDS}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_is_not_installed_is_named(kind: str) -> None:
    problem = refusals.child(kind, "x", 404, "the server could not find the requested resource")
    assert problem.reason is Reason.DELIVERY_NOT_INSTALLED
    assert problem not in refusals.NOT_INSTALLED.values(), "else pods seem to serve without it"
    assert not problem.serves
    assert "delivery: " in problem.message
    assert kind in problem.message


async def test_two_kinds_of_one_name_are_two() -> None:
    """VaultDynamicSecret is one of External Secrets' and one of the Vault Secrets Operator's."""
    cluster = Cluster(client.ApiClient(), Fence(lambda: 0.0))
    twins = [kind for kind in DELIVERY_KINDS if kind.kind == "VaultDynamicSecret"]
    assert len({kind.key for kind in twins}) == 2
    labels = {names.LABEL_OWNER: "reader"}
    for kind in twins:
        metadata = {"namespace": "n", "name": "x", "resourceVersion": "1", "labels": labels}
        cluster.told(kind, None, {"metadata": metadata})
    found = list(cluster.index.owned("n", "reader"))
    assert {item["apiVersion"] for item in found} == {kind.api_version for kind in twins}
    await cluster.close()


def test_a_missing_secret_of_a_source_is_named_by_its_field(
    make_target: MakeTarget, make_pod: Callable[..., dict[str, Any]]
) -> None:
    store = {"name": "store", "secret": {"name": "valkey-user"}}
    keys = {"name": "keys", "secret": {"name": "tenants"}}
    prod = {"name": "prod", "sources": [store, keys]}
    target = make_target(
        config={"environment": "prod", "environments": [prod]},
        tenants={
            "keysSecret": {"source": "keys"},
            "serverKeySecret": {"source": "store", "key": "server-key"},
        },
    )
    text = 'MountVolume.SetUp failed for volume "source-store" : secret "valkey-user" not found'
    event = {"reason": "FailedMount", "message": text, "count": 1}
    problem = diagnose(target, make_pod(target), None, (event,), "2026-01-02T00:10:00Z")
    assert problem is not None
    assert problem.reason is Reason.SECRET_NOT_FOUND
    assert "spec.config.environments[prod].sources[store].secret.name" in problem.message
