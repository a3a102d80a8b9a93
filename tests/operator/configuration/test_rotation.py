"""A value that changes while pods run: one pod first, then all; steps wait; what is told of it."""

from __future__ import annotations

import pytest

from tests.operator.rollout.made_up.scenarios import (
    STEPS,
    both,
    configured,
    count,
    note,
    value,
)
from tests.operator.rollout.made_up.world import World


@pytest.fixture
def running() -> World:
    """Three pods that use the first values."""
    world = World()
    configured(1)(world)
    return world.settled()


def source(world: World, name: str = "store") -> dict[str, object]:
    (found,) = (
        each for each in world.resource["status"]["config"]["sources"] if each["name"] == name
    )
    return found


def test_what_every_pod_uses_is_in_the_status(running: World) -> None:
    assert running.resource["status"]["config"]["environment"] == "prod"
    assert source(running) == {"name": "store", "version": "s1", "pods": "3/3"}
    assert running.condition("ConfigSynced") == "True ConfigCurrent"


def test_one_pod_takes_a_new_value_first_and_the_others_behind_its_proof(running: World) -> None:
    value("store", "s2")(running)
    running.live(20, until=lambda: "prover" in source(running))
    first = source(running)["prover"]
    assert not running.one_pass().settled, "the operator looks again soon: no event tells of it"
    assert running.sources.taken == []
    assert running.condition("ConfigSynced") == "False RotationInProgress"
    running.settled()
    assert running.sources.taken[0] == (first, "s2")
    assert [new for _, new in running.sources.taken] == ["s2"] * 3
    assert source(running) == {"name": "store", "version": "s2", "pods": "3/3"}
    assert "SecretRotated" in running.reasons()


def test_a_user_that_a_controller_has_made_for_all_is_a_value_as_any_other() -> None:
    """The server leases it to the controller; pods have one Secret alike and know of no lease."""
    world = World()
    world.sources.values |= {"store": "s1", "keys": "k1"}
    server = {"address": "http://bao:8200", "auth": {"role": "reader"}}
    prod = {
        "name": "prod",
        "vault": {**server, "delivery": "external-secrets"},
        "sources": [
            {"name": "store", "database": {"mount": "database", "role": "store"}},
            {"name": "keys", "kv": {"path": "keys"}},
        ],
    }
    entries = {f"{key}Secret": {"source": "store", "key": key} for key in ("username", "password")}
    world.apply_spec(
        replicas=3,
        config={"environment": "prod", "environments": [prod]},
        tenants={"keysSecret": {"source": "keys"}, "serverKeySecret": {"name": "server-key"}},
        tiers={"valkey": {"host": "valkey.cache.svc", **entries}},
    )
    world.settled()
    assert source(world) == {"name": "store", "version": "s1", "pods": "3/3"}
    conditions = {each["type"] for each in world.resource["status"]["conditions"]}
    assert "SecretLeaseHealthy" not in conditions
    value("store", "s2")(world)
    world.settled()
    assert [new for _, new in world.sources.taken] == ["s2"] * 3
    assert source(world) == {"name": "store", "version": "s2", "pods": "3/3"}


def test_a_value_that_does_not_work_stays_out_and_is_named(running: World) -> None:
    value("store", "s2", bad=True)(running)
    running.settled()
    assert running.sources.taken == []
    assert running.condition("ConfigSynced") == "False ConfigNotProved"
    assert "ConfigNotProved" in running.reasons()
    assert running.condition("Ready") == "True AllReplicasReady"
    value("store", "s1")(running)
    running.settled()
    assert running.condition("ConfigSynced") == "True ConfigCurrent"


def test_both_revisions_take_a_value_and_steps_wait_for_it() -> None:
    world = World(lag=3)
    both(count(0), configured(1, steps=STEPS))(world)
    world.settled()
    configured(2, steps=STEPS)(world)
    world.live(60, until=lambda: world.rollout["currentStep"] == 4)
    window, deadline = world.plan.window, world.rollout["stepDeadline"]
    value("store", "s2")(world)
    world.live(60, until=lambda: "heldSince" in world.rollout)
    assert world.condition("Paused") == "True RotationInProgress"
    world.live(60, until=lambda: "heldSince" not in world.rollout)
    assert world.rollout["currentStep"] == 4
    assert world.rollout["stepDeadline"] > deadline
    assert world.plan.window > window
    assert {pod.using["store"] for pod in world.all_pods.values()} == {"s2"}
    assert {pod.revision for pod in world.all_pods.values()} == {
        world.rollout["stableRevision"],
        world.rollout["canaryRevision"],
    }
    world.settled()
    assert world.rollout["state"] == "Idle"


def test_a_value_that_pods_cannot_take_up_replaces_them(running: World) -> None:
    configured(1, change="restart")(running)
    running.settled()
    before = set(running.all_pods)
    value("store", "s2")(running)
    running.settled()
    assert not before & set(running.all_pods)
    assert {pod.using["store"] for pod in running.all_pods.values()} == {"s2"}
    assert "RolloutRestartTriggered" in running.reasons()
    assert running.condition("ConfigSynced") == "True ConfigCurrent"


def test_reload_config_is_followed_by_every_pod(running: World) -> None:
    note(reload_config="noon")(running)
    running.settled()
    assert running.resource["status"]["config"]["asked"] == "noon"
    assert {pod.asked for pod in running.all_pods.values()} == {"noon"}


def test_what_was_asked_of_others_holds_no_revision_without_sources() -> None:
    world = World()
    both(count(0), configured(1, steps=STEPS))(world)
    note(reload_config="noon")(world)
    world.settled()
    world.sources.without = {"lab"}
    lab = {"environment": "lab", "environments": [{"name": "lab"}]}
    world.apply_spec(replicas=3, config=lab, rollout={"steps": STEPS})
    world.settled()
    assert world.pointer == world.revision
    assert "heldSince" not in world.rollout


def test_what_nobody_can_follow_holds_no_steps() -> None:
    world = World()
    both(count(0), configured(1, steps=STEPS))(world)
    world.settled()
    world.sources.away = True
    note(reload_config="noon")(world)
    configured(2, steps=STEPS)(world)
    world.settled()
    assert world.condition("ConfigSynced") == "False ConfigUnavailable"
    assert world.pointer == world.revision


def test_a_value_that_was_tried_put_back_and_tried_again_replaces_pods(running: World) -> None:
    configured(1, change="restart")(running)
    running.settled()
    value("store", "s2")(running)
    running.live(20, until=lambda: "RolloutRestartTriggered" in running.reasons())
    value("store", "s1")(running)
    running.settled()
    assert {pod.using["store"] for pod in running.all_pods.values()} == {"s1"}
    value("store", "s2")(running)
    running.settled()
    assert {pod.using["store"] for pod in running.all_pods.values()} == {"s2"}
    assert running.condition("ConfigSynced") == "True ConfigCurrent"


def test_an_environment_gives_its_share_until_an_annotation_does(running: World) -> None:
    configured(2, weight="5")(running)
    running.settled()
    assert running.share == 500
    assert "environment 'prod'" in running.rollout["message"]
    note(canary_weight="50")(running)
    running.settled()
    assert running.share == 5000
    note(canary_weight=None)(running)
    running.settled()
    assert running.share == 5000, "an annotation that is gone changes nothing"
    note(canary_weight="auto")(running)
    running.settled()
    assert running.pointer == running.revision, "without steps it takes over"


def test_a_canary_without_share_is_ready_beside_stable(running: World) -> None:
    configured(2, weight="0")(running)
    running.settled()
    assert running.share == 0
    assert len(running.ready(running.revision)) == 1
    assert running.rollout["state"] == "Paused"


def test_an_environment_without_sources_is_in_the_status_too() -> None:
    world = World()
    world.apply_spec(replicas=1, config={"environment": "lab", "environments": [{"name": "lab"}]})
    world.settled()
    assert world.resource["status"]["config"] == {"environment": "lab", "sources": []}
    kinds = {item["type"] for item in world.resource["status"]["conditions"]}
    assert "ConfigSynced" not in kinds
