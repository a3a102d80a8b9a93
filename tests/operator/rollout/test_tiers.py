"""Stable keeps the way to its tiers while a canary beside it has others, or none.

The NetworkPolicy and the Service of peers are shared: they cover the pods of every revision.
"""

from __future__ import annotations

from typing import Any

import pytest
from chiasm_contract import names

from tests.operator.rollout.made_up.world import NAME, World

PEERS = {"secret": {"name": "peers", "key": "secret"}}


def apply(world: World, **tiers: Any) -> None:
    """A resource with these tiers; none for no section at all."""
    world.apply_spec(replicas=3, **({"tiers": tiers} if tiers else {}))


def valkey(port: int) -> dict[str, Any]:
    return {"host": "valkey", "port": port}


def policy(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.objects["NetworkPolicy", NAME]["spec"]
    return found


def valkey_ports(world: World) -> list[int]:
    return [item["port"] for item in policy(world)["egress"][0]["ports"] if item["port"] != 53]


def peer_ports(world: World) -> list[int]:
    return [item["port"] for each in policy(world)["ingress"][1:] for item in each["ports"]]


def begun(world: World) -> World:
    """Both revisions stand, and each has a part of the traffic."""
    world.annotate(canary_weight="50")
    return world.settled()


@pytest.fixture
def with_valkey() -> World:
    world = World()
    apply(world, valkey=valkey(6379))
    return world.settled()


def test_a_canary_without_valkey_leaves_stable_its_port(with_valkey: World) -> None:
    apply(with_valkey)
    assert valkey_ports(begun(with_valkey)) == [6379]
    with_valkey.annotate(rollout_action="abort")
    assert valkey_ports(with_valkey.settled()) == [6379], "an abort leaves stable for long"
    with_valkey.annotate(rollout_action="retry", canary_weight="auto")
    assert valkey_ports(with_valkey.settled()) == [], "nobody needs it any more"


def test_two_ports_are_open_while_both_are_used(with_valkey: World) -> None:
    apply(with_valkey, valkey=valkey(6380))
    assert valkey_ports(begun(with_valkey)) == [6379, 6380]
    with_valkey.annotate(canary_weight="auto")
    assert valkey_ports(with_valkey.settled()) == [6380]


def test_peers_are_found_while_stable_has_them() -> None:
    world = World()
    apply(world, host={"maxBytes": "64Mi"}, peers={**PEERS, "transport": "nixl"})
    service = ("Service", f"{NAME}-peers")
    assert service in world.settled().objects
    apply(world)
    assert service in begun(world).objects
    assert peer_ports(world) == [names.PEER_PORT, names.PEER_DATA_PORT]
    world.annotate(canary_weight="auto")
    assert service not in world.settled().objects
    assert peer_ports(world) == []


def test_a_lost_record_stops_nothing(with_valkey: World) -> None:
    """Of a revision whose record somebody deleted, what it was made from is not known."""
    stable = with_valkey.pointer or ""
    del with_valkey.objects["ControllerRevision", f"{NAME}-{stable}"]
    apply(with_valkey)
    begun(with_valkey)
    assert with_valkey.share == 5000
