"""Revisions on a real API server: beside each other, promoted, aborted; and the operator killed at
every transition on the way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract import names

pytestmark = pytest.mark.cluster

World = Any  # the Namespace of conftest.py
Eventually = Callable[..., None]
Stage = tuple[dict[str, Any] | None, dict[str, str | None], Callable[[dict[str, Any]], bool]]


def deployments(world: World, name: str) -> dict[str, int]:
    """Revision -> pods that its Deployment asks for."""
    return {
        item["metadata"]["labels"][names.LABEL_REVISION]: item["spec"]["replicas"]
        for (kind, _), item in world.children(name).items()
        if kind == "Deployment"
    }


def pointer(world: World, name: str) -> str:
    selector = world.children(name)["Service", name]["spec"]["selector"]
    return str(selector[names.LABEL_REVISION])


def plan(world: World, name: str) -> dict[str, Any]:
    data = world.children(name)["ConfigMap", f"{name}-traffic"]["data"]
    found: dict[str, Any] = json.loads(data[names.TRAFFIC_KEY])
    return found


def test_a_canary_by_annotation_is_promoted_without_a_restart(
    calm: World, name: str, eventually: Eventually
) -> None:
    calm.apply(name, replicas=2)
    eventually(lambda: calm.condition(name, "Ready").get("status") == "True", "it should be up")
    first = calm.status(name)["revision"]
    calm.annotate(name, canary_weight="5")
    calm.apply(name, replicas=2, engine={"maxNumSeqs": 3})
    eventually(lambda: calm.status(name)["rollout"]["state"] == "Paused", "it should rest at 5 %")
    assert calm.status(name)["rollout"]["weight"] == "5"
    second = calm.status(name)["revision"]
    assert deployments(calm, name) == {first: 2, second: 1}
    assert pointer(calm, name) == first
    assert plan(calm, name)["share"] == 500
    calm.annotate(name, rollout_action=f"promote:{second}")
    eventually(lambda: deployments(calm, name) == {second: 2}, "it should take over")
    assert pointer(calm, name) == second
    eventually(lambda: calm.condition(name, "Ready").get("status") == "True", "it should be Ready")
    calm.annotate(name, canary_weight=None, rollout_action=None)
    expected = {"TrafficWeightUpdated", "RolloutPaused", "RolloutPromoted"}
    eventually(lambda: expected <= calm.reasons(name), f"events should tell {expected}")
    calm.delete(calm.path(name))


def test_a_bad_annotation_is_told(calm: World, name: str, eventually: Eventually) -> None:
    calm.apply(name)
    eventually(lambda: calm.condition(name, "Ready").get("status") == "True", "it should be up")
    calm.annotate(name, canary_weight="lots")
    eventually(
        lambda: calm.condition(name, "RolloutHealthy").get("reason") == "InvalidAnnotation",
        "a condition should name it",
    )
    eventually(lambda: "InvalidAnnotation" in calm.reasons(name), "an event should name it")
    messages = [
        event["message"] for event in calm.events(name) if event["reason"] == "InvalidAnnotation"
    ]
    assert "'lots'" in messages[0]
    calm.delete(calm.path(name))


STEPS = {"steps": [{"setWeight": 20}, {"pause": {"seconds": 2}}, {"setWeight": 60}]}


def is_state(*states: str) -> Callable[[dict[str, Any]], bool]:
    return lambda status: status.get("rollout", {}).get("state") in states


def healthy(status: dict[str, Any]) -> bool:
    """Everything is up, and nothing of what was replaced is still to go."""
    rollout = status.get("rollout", {})
    done = rollout.get("state") == "Idle" and not rollout["leaving"]
    return bool(done and status.get("phase") == "Healthy")


# What is applied, what is annotated, and when the next may come.
SCENARIOS: dict[str, list[Stage]] = {
    "rolling": [({}, {}, healthy), ({"engine": {"maxNumSeqs": 2}}, {}, healthy)],
    "steps": [
        ({"rollout": STEPS}, {}, healthy),
        ({"rollout": STEPS, "engine": {"maxNumSeqs": 2}}, {}, healthy),
    ],
    "promoted": [
        ({}, {}, healthy),
        ({"engine": {"maxNumSeqs": 2}}, {"canary_weight": "25"}, is_state("Paused")),
        (None, {"rollout_action": "promote", "canary_weight": None}, healthy),
    ],
    "aborted": [
        ({"rollout": {"abort": {"scaleDownDelaySeconds": 1}}}, {}, healthy),
        (
            {
                "rollout": {"abort": {"scaleDownDelaySeconds": 1}},
                "engine": {"maxNumSeqs": 2},
            },
            {"canary_weight": "25"},
            is_state("Paused"),
        ),
        (None, {"rollout_action": "abort"}, is_state("Aborted")),
    ],
    "third": [
        ({}, {}, healthy),
        ({"engine": {"maxNumSeqs": 2}}, {"canary_weight": "50"}, is_state("Paused")),
        ({"engine": {"maxNumSeqs": 3}}, {}, is_state("Paused")),
        (None, {"rollout_action": "promote"}, healthy),
    ],
    "undone": [
        ({}, {}, healthy),
        ({"engine": {"maxNumSeqs": 2}}, {"canary_weight": "50"}, is_state("Paused")),
        ({}, {"canary_weight": None}, healthy),
    ],
}


class Teller:
    """Tells a scenario; kills the operator each time the rollout has come into another state."""

    def __init__(self, world: World, operator: Any, name: str, *, kills: bool) -> None:
        self._world, self._operator, self._name, self._kills = world, operator, name, kills
        self._seen = ""
        self.transitions = 0

    def tell(self, stages: list[Stage]) -> None:
        for number, (sections, notes, reached) in enumerate(stages):
            if notes:
                self._world.annotate(self._name, **notes)
            if sections is not None:
                self._world.apply(self._name, replicas=3, **sections)
            self._until(reached, f"stage {number}")

    def _until(self, reached: Callable[[dict[str, Any]], bool], what: str) -> None:
        # Only ends a wait that would never end: an operator may take a minute to start.
        deadline = time.monotonic() + 900
        while True:
            resource = self._world.get(self._world.path(self._name))
            status = resource.get("status", {})
            state = status.get("rollout", {}).get("state", "")
            current = status.get("observedGeneration") == resource["metadata"]["generation"]
            if current and reached(status) and self._still(status):
                return
            if self._kills and state and state != self._seen:
                self._seen = state
                self.transitions += 1
                self._operator.kill()
                self._operator.start()
            assert time.monotonic() < deadline, (what, status)
            time.sleep(0.02)

    def _still(self, status: dict[str, Any]) -> bool:
        """Whether the revision that leaves is gone."""
        standing = set(deployments(self._world, self._name))
        rollout = status["rollout"]
        return standing <= {rollout["stableRevision"], rollout["canaryRevision"]}


def end(world: World, name: str) -> dict[str, Any]:
    status = world.status(name)
    rollout = {key: value for key, value in status["rollout"].items() if key != "epoch"}
    rollout["leaving"] = [{**item, "until": ""} for item in rollout["leaving"]]
    split = plan(world, name)
    return {
        "rollout": rollout,
        "phase": status["phase"],
        "deployments": deployments(world, name),
        "pointer": pointer(world, name),
        "plan": (split["share"], split["stable"]["revision"], "canary" in split),
    }


@pytest.mark.kills
def test_killed_at_every_transition_the_end_is_the_same(
    kubeconfig: Path,
    make_world: Callable[[], Any],
    make_operator: Callable[[Path, str], Any],
    record_property: Callable[[str, object], None],
) -> None:
    world = make_world()
    operator = make_operator(kubeconfig, world.name)
    operator.start()
    transitions, divergent, orphans = 0, [], []
    for scenario, stages in SCENARIOS.items():
        ends = []
        for kills in (False, True):
            name = f"{scenario}-killed" if kills else f"{scenario}-calm"
            teller = Teller(world, operator, name, kills=kills)
            # A restart is at work only once it has looked.
            world.apply(name, replicas=3, **(stages[0][0] or {}))
            teller.tell(stages)
            ends.append(end(world, name))
            transitions += teller.transitions
            live = world.get(world.path(name))["metadata"]["uid"]
            orphans += [
                key
                for key, item in world.children(name).items()
                if item["metadata"]["ownerReferences"][0]["uid"] != live
            ]
        if ends[0] != ends[1]:
            divergent.append((scenario, *ends))
    record_property("transitions", transitions)
    record_property("divergent_end_states", len(divergent))
    record_property("rollout_orphans", len(orphans))
    assert not divergent
    assert not orphans
    assert transitions >= 5 * len(SCENARIOS)
