"""Two real operators over the same resources: one writes, and a stopped one never again.

They are told apart by their images: whatever the wrong one wrote would be another revision.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from chiasm_operator.leadership.fence import FARTHEST

pytestmark = pytest.mark.cluster

Eventually = Callable[..., None]
LEASE_SECONDS = 9


@pytest.fixture
def pair(
    make_operator: Callable[..., Any], kubeconfig: Path, own_world: Any, eventually: Eventually
) -> tuple[Any, Any]:
    """The leader and the follower."""
    operators = [
        make_operator(
            kubeconfig, own_world.name, worker_image=f"example.invalid/{name}:1",
            lease_seconds=LEASE_SECONDS, resync_seconds=2,
        )
        for name in "ab"
    ]  # fmt: skip
    operators[0].start()
    eventually(lambda: "leading" in role(operators[0]), "the first should lead")
    operators[1].start()
    eventually(lambda: "following" in role(operators[1]), "the second should follow")
    return operators[0], operators[1]


def role(operator: Any) -> str:
    """What it last said that it does."""
    said = re.findall(r"(leading with epoch \d+|following|no longer leading)", operator.log)
    return str(said[-1]) if said else ""


def told(operator: Any) -> str:
    """What /healthz says that it does."""
    health = operator.health()
    return str(health[1].get("leader", "")) if health and health[0] == 200 else ""


def images(world: Any, name: str) -> list[str]:
    """The worker's image of each revision that has a Deployment."""
    return [
        container["image"]
        for (kind, _), child in world.children(name).items()
        if kind == "Deployment"
        for container in child["spec"]["template"]["spec"]["containers"]
        if container["name"] == "worker"
    ]


def has_deployment(world: Any, name: str) -> bool:
    return any(kind == "Deployment" for kind, _ in world.children(name))


def written(world: Any, name: str) -> dict[Any, Any]:
    """What changes when an operator writes a child, and not when a controller counts pods."""
    found = {
        key: (item["metadata"]["uid"], item["metadata"].get("generation"), item.get("data"))
        for key, item in world.children(name).items()
    }
    return {**found, "epoch": world.status(name)["operatorEpoch"]}


def test_a_stopped_leader_is_replaced_and_never_writes_again(
    pair: tuple[Any, Any], own_world: Any, name: str, eventually: Eventually
) -> None:
    first, second = pair
    own_world.apply(name, replicas=1)
    eventually(lambda: own_world.status(name).get("phase") == "Healthy", "it should be served")
    assert images(own_world, name) == ["example.invalid/a:1"]
    assert own_world.status(name)["operatorEpoch"] == 1

    first.send(signal.SIGSTOP)
    own_world.apply(name, replicas=2)
    eventually(
        lambda: (
            images(own_world, name) == ["example.invalid/b:1"]
            and own_world.status(name).get("phase") == "Healthy"
            and own_world.status(name).get("ready") == "2/2"
        ),
        "the follower should take over",
    )
    assert "leading with epoch 2" in role(second)
    before = written(own_world, name)
    assert before["epoch"] == 2

    # Work for the old leader the moment that it wakes: it knows of none of this.
    own_world.patch(own_world.path(name), {"metadata": {"labels": {"a": "b"}}})
    first.send(signal.SIGCONT)
    eventually(lambda: "following" in role(first), "it should find that it no longer leads")
    watched_until = time.monotonic() + LEASE_SECONDS
    while time.monotonic() < watched_until:
        assert written(own_world, name) == before
        time.sleep(0.2)
    assert "no longer leading" in first.log
    eventually(lambda: told(first).startswith("following operator-"), "/healthz should say so")
    eventually(lambda: told(second).startswith("leading with epoch 2"), "/healthz should say so")


def test_a_leader_that_ends_gives_the_lease_back(
    pair: tuple[Any, Any], own_world: Any, name: str, eventually: Eventually
) -> None:
    first, second = pair
    first.kill(signal.SIGTERM)
    eventually(lambda: "leading with epoch 2" in role(second), "the follower should lead")
    own_world.apply(name, replicas=0)
    eventually(lambda: images(own_world, name) == ["example.invalid/b:1"], "it should work")


def test_stopped_and_let_go_again_and_again_there_is_one_story(
    pair: tuple[Any, Any], own_world: Any, name: str, eventually: Eventually
) -> None:
    """Leader after leader is stopped in the middle of its work and let go when the next leads."""
    own_world.apply(name, replicas=1)
    eventually(lambda: has_deployment(own_world, name), "it should work")
    epochs = []
    for round_ in range(3):
        (leader,) = (each for each in pair if role(each).startswith("leading"))
        (other,) = (each for each in pair if each is not leader)
        own_world.apply(name, replicas=1, engine={"maxNumSeqs": round_ + 2})
        leader.send(signal.SIGSTOP)
        eventually(lambda it=other: role(it).startswith("leading"), "the other should lead", 120)
        leader.send(signal.SIGCONT)
        eventually(lambda: stands(own_world, name, pair), "what one leader wants should stand", 120)
        epochs.append(own_world.status(name)["operatorEpoch"])
    assert epochs == sorted(set(epochs))


def stands(world: Any, name: str, pair: tuple[Any, Any]) -> bool:
    """Whether there is one leader, and all is as that one wants it."""
    leading = [index for index, each in enumerate(pair) if role(each).startswith("leading")]
    if len(leading) != 1 or world.status(name).get("phase") != "Healthy":
        return False
    return images(world, name) == [f"example.invalid/{'ab'[leading[0]]}:1"]


def test_the_api_server_itself_refuses_an_older_epoch(
    pair: tuple[Any, Any],
    own_world: Any,
    name: str,
    kubectl: Callable[..., str],
    eventually: Eventually,
) -> None:
    own_world.apply(name, replicas=0)
    eventually(lambda: own_world.status(name).get("operatorEpoch"), "a status should be there")
    path = f"{own_world.path(name)}/status"
    headers = {"Content-Type": "application/merge-patch+json"}

    def write(epoch: int) -> httpx.Response:
        body = {"status": {"operatorEpoch": epoch}}
        return own_world.api.patch(path, headers=headers, json=body)

    assert write(7).is_success
    refused = write(6)
    assert refused.status_code == 422
    assert "a later leader of the operator has written this status" in refused.text
    # The Lease counts on from there, as after a restore without it.
    own_world.apply(name, replicas=1)

    def counts_on() -> bool:
        status = own_world.status(name)
        return 7 < status.get("operatorEpoch", 0) < FARTHEST and status.get("ready") == "1/1"

    eventually(counts_on, "the leader should count on from what it met")
    # Nobody counts on from what no leader can have counted; the log says how to take it away.
    assert write(FARTHEST + 1).is_success
    eventually(lambda: "take it away: kubectl patch" in pair[0].log, "its log should say so")
    kubectl(
        "patch", "mmi", name, "-n", own_world.name, "--subresource=status", "--type=json",
        '-p=[{"op": "remove", "path": "/status/operatorEpoch"}]',
    )  # fmt: skip
    eventually(counts_on, "the leader should go on")
