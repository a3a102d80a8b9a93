"""The operator killed twenty times while ten resources come, change and go: the same end state.

The same story is told twice, once with a calm operator and once with one that is killed (SIGKILL)
at random moments. What matters is compared: each child with all that the operator decides about
it, each resource's status, and that nothing is left without a living owner.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from chiasm_contract import names

pytestmark = pytest.mark.cluster

NUM_RESOURCES = 10
NUM_KILLS = 20
SEED = 20261129

NAMES = [f"reader-{number}" for number in range(NUM_RESOURCES)]
REMOVED, REBORN = NAMES[:3], NAMES[2:4]


def story(world: Any, pause: Callable[[], None]) -> None:
    """Ten resources are applied, changed, scaled; some go, two come back under their old names."""
    for number, name in enumerate(NAMES):
        world.apply(name, replicas=1 + number % 3)
        pause()
    for number, name in enumerate(NAMES):
        world.apply(name, replicas=1 + number % 2, engine={"maxNumSeqs": number + 1})
        pause()
    for name in NAMES[5:]:
        world.delete(world.child("Service", name))
        for kind, child in world.children(name):
            if kind == "Deployment":
                world.patch(world.child(kind, child), {"spec": {"replicas": 5}})
        pause()
    for name in REMOVED:
        world.delete(world.path(name))
        pause()
    for name in REBORN:
        world.delete(world.path(name))
        world.apply(name, config={"logLevel": "debug"})
        pause()
    for number, name in enumerate(NAMES[6:]):
        world.apply(name, replicas=3 - number % 3, media={"maxBodyBytes": f"{64 + number}Mi"})
        pause()


def expected_names() -> set[str]:
    return set(NAMES) - set(REMOVED) | set(REBORN)


def decided(manifest: dict[str, Any]) -> dict[str, Any]:
    """What the operator alone decides of a child, without what differs between namespaces."""
    applied = next(
        entry["fieldsV1"]
        for entry in manifest["metadata"]["managedFields"]
        if entry["manager"] == "chiasm-operator"
    )
    labels = manifest["metadata"]["labels"]
    picked = {
        key: manifest[key] for key in ("data", "automountServiceAccountToken") if key in manifest
    }
    if names.TRAFFIC_KEY in picked.get("data", {}):
        plan = json.loads(picked["data"][names.TRAFFIC_KEY])
        # How often it changed on the way, and in which namespace.
        picked["data"] = {"share": plan["share"], "stable": plan["stable"]["revision"]}
    spec = {
        key: value
        for key, value in manifest.get("spec", {}).items()
        if key not in {"clusterIP", "clusterIPs"}
    }
    return {"fields": _without_uids(applied), "labels": labels, "spec": spec, **picked}


def _without_uids(fields: Any) -> Any:
    if not isinstance(fields, dict):
        return fields
    return {
        ("k:owner" if key.startswith('k:{"uid"') else key): _without_uids(value)
        for key, value in fields.items()
    }


def said(status: dict[str, Any], namespace: str) -> dict[str, Any]:
    """A status without times and counts of lives; generations are equal, for the story is."""
    conditions = {
        # The number of a plan only counts on the way.
        item["type"]: (item["status"], item["reason"], item["message"].rstrip("0123456789."))
        for item in status["conditions"]
    }
    rollout = {key: value for key, value in status["rollout"].items() if key != "epoch"}
    return {
        **{key: value for key, value in status.items() if key != "operatorEpoch"},
        "rollout": rollout,
        "url": status["url"].replace(namespace, "NAMESPACE"),
        "conditions": conditions,
    }


def end_state(world: Any) -> dict[str, Any]:
    """Everything to compare, once it no longer moves."""
    items = world.get(world.path())["items"]
    current = {f"{item['metadata']['name']}-{item['status']['revision']}" for item in items}
    children = {
        key: decided(item)
        for key, item in world.children().items()
        # Revisions that an operator never saw, for it was dead, are not in the history.
        if key[0] != "ControllerRevision" or key[1] in current
    }
    return {
        "children": children,
        "statuses": {item["metadata"]["name"]: said(item["status"], world.name) for item in items},
    }


def calm(world: Any) -> bool:
    """Every resource is up, its configs pruned, and nothing else is there."""
    items = {item["metadata"]["name"]: item for item in world.get(world.path())["items"]}
    if set(items) != expected_names():
        return False
    for item in items.values():
        status = item.get("status", {})
        current = status.get("observedGeneration") == item["metadata"]["generation"]
        if not current or status.get("phase") != "Healthy":
            return False
    children = world.children()
    configs = [name for kind, name in children if kind == "ConfigMap"]
    wanted = {f"{name}-{item['status']['revision']}" for name, item in items.items()}
    deployments = {name for kind, name in children if kind == "Deployment"}
    wanted_configs = wanted | {f"{name}-traffic" for name in items}
    owners = {labels(item)["chiasm.dev/name"] for item in children.values()}
    return set(configs) == wanted_configs and deployments == wanted and owners == set(items)


def labels(item: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = item["metadata"]["labels"]
    return found


class Killer(threading.Thread):
    """Kills an operator at random moments and starts it again, a number of times."""

    def __init__(self, operator: Any, seed: int) -> None:
        super().__init__(daemon=True)
        self._operator = operator
        self._random = random.Random(seed)
        self.num_kills = 0

    def run(self) -> None:
        for _ in range(NUM_KILLS):
            # Half of the lives are too short to finish starting, some end in the middle of a pass.
            time.sleep(self._random.uniform(0.5, 6.0))
            self._operator.kill()
            self.num_kills += 1
            self._operator.start()


def tell(
    api: httpx.Client,
    world: Any,
    operator: Any,
    eventually: Callable[..., None],
    *,
    kill: bool,
) -> dict[str, Any]:
    """The story's end state."""
    operator.start()
    if not kill:
        story(world, lambda: None)
    else:
        killer = Killer(operator, SEED)
        killer.start()
        moments = random.Random(SEED)
        # The story lasts about as long as the killing.
        story(world, lambda: time.sleep(moments.uniform(0.5, 3.0)))
        killer.join()
        assert killer.num_kills == NUM_KILLS
    eventually(lambda: calm(world), "every resource should become Healthy", seconds=120)
    return end_state(world)


def test_killed_twenty_times_the_end_is_the_same(
    api: httpx.Client,
    kubeconfig: Path,
    make_world: Callable[[], Any],
    make_operator: Callable[[Path, str], Any],
    eventually: Callable[..., None],
    record_property: Callable[[str, object], None],
) -> None:
    ends, orphans = [], []
    for kill in (False, True):
        world = make_world()
        operator = make_operator(kubeconfig, world.name)
        began = time.monotonic()
        ends.append(tell(api, world, operator, eventually, kill=kill))
        seconds = round(time.monotonic() - began, 1)
        record_property("killed_seconds" if kill else "undisturbed_seconds", seconds)
        live = {item["metadata"]["uid"] for item in world.get(world.path())["items"]}
        orphans += [
            key
            for key, item in world.children().items()
            if item["metadata"]["ownerReferences"][0]["uid"] not in live
        ]
        operator.kill()
    undisturbed, killed = ends
    different = [
        (part, key)
        for part in ("children", "statuses")
        for key in undisturbed[part].keys() | killed[part].keys()
        if undisturbed[part].get(key) != killed[part].get(key)
    ]
    record_property("num_kills", NUM_KILLS)
    record_property("num_resources", NUM_RESOURCES)
    record_property("num_children", len(undisturbed["children"]))
    record_property("differences", len(different))
    record_property("orphans", len(orphans))
    assert not orphans
    assert not different
