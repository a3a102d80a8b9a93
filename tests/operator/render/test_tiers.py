"""Tiers are the sidecar's: their volumes, their ports, and who may reach a replica's memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract.config import SidecarConfig
from chiasm_operator import render
from chiasm_operator.render import Target

from tests.operator.render.rendered import child, pod_spec


def test_only_the_sidecar_reaches_tiers(make_target: Callable[..., Target]) -> None:
    for name, own in (("complete", {"disk-tier", "valkey", "peers"}), ("minimal", set())):
        spec = pod_spec(make_target(name))
        (sidecar,), (worker,) = spec["initContainers"], spec["containers"]
        mounted = [{mount["name"] for mount in each["volumeMounts"]} for each in (sidecar, worker)]
        assert own <= mounted[0]
        assert not mounted[1] & {"disk-tier", "valkey", "peers"}
        assert {volume["name"] for volume in spec["volumes"]} == mounted[0] | mounted[1]
    worker_config = child(make_target("complete"), "ConfigMap")["data"]["worker.json"]
    assert "valkey" not in worker_config
    assert "disk" not in worker_config
    assert "peers" not in worker_config


def sharing(make_target: Callable[..., Target], transport: str | None, **changes: Any) -> Target:
    """One whose pods read each other's memory; None: as it is without a word."""
    peers: dict[str, Any] = {"secret": {"name": "peers", "key": "secret"}}
    if transport is not None:
        peers["transport"] = transport
    return make_target(tiers={"host": {"maxBytes": "64Mi"}, "peers": peers}, **changes)


@pytest.mark.parametrize(
    ("transport", "ports"), [(None, [9200]), ("stream", [9200]), ("nixl", [9200, 9201])]
)
def test_only_pods_of_the_resource_reach_each_other_s_memory(
    make_target: Callable[..., Target], transport: str | None, ports: list[int]
) -> None:
    target = sharing(make_target, transport)
    services = [each for each in render.children(target) if each["kind"] == "Service"]
    (headless,) = [each for each in services if each["spec"].get("clusterIP") == "None"]
    assert headless["metadata"]["name"] == f"{target.name}-peers"
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["selector"] == target.selector
    policy = child(target, "NetworkPolicy")["spec"]
    between = {"ports": [{"port": port, "protocol": "TCP"} for port in ports]}
    pods = [{"podSelector": {"matchLabels": target.selector}}]
    assert policy["ingress"][1:] == [{"from": pods, **between}]
    names, _, others = policy["egress"]
    assert [port["port"] for port in names["ports"]] == [53, 53]
    assert others == {"to": pods, **between}
    sidecar = SidecarConfig.model_validate_json(child(target, "ConfigMap")["data"]["sidecar.json"])
    assert sidecar.tiers is not None
    assert sidecar.tiers.peers is not None
    assert sidecar.tiers.peers.hosts == ("shelf-reader-peers.vision.svc",)
    assert sidecar.tiers.peers.transport == (transport or "stream")


def test_only_pods_that_read_by_nixl_run_the_image_for_it(
    make_target: Callable[..., Target],
) -> None:
    target = sharing(make_target, "nixl")
    assert pod_spec(target)["initContainers"][0]["image"] == target.images.sidecar_peers
    newer = replace(target.images, sidecar_peers="example.com/sidecar-peers:2")
    assert sharing(make_target, "nixl", images=newer).revision != target.revision
    host = {"host": {"maxBytes": "64Mi"}}
    for without in (make_target(tiers=host), sharing(make_target, "stream")):
        assert pod_spec(without)["initContainers"][0]["image"] == without.images.sidecar
    assert make_target(tiers=host, images=newer).revision == make_target(tiers=host).revision
    streaming = sharing(make_target, "stream")
    assert sharing(make_target, "stream", images=newer).revision == streaming.revision


def test_without_peers_there_is_one_service_and_no_port_for_them(
    make_target: Callable[..., Target],
) -> None:
    target = make_target()
    services = [each for each in render.children(target) if each["kind"] == "Service"]
    assert [each["metadata"]["name"] for each in services] == [
        f"{target.name}-{target.revision}",
        target.name,
    ]
    assert len(child(target, "NetworkPolicy")["spec"]["ingress"]) == 1


def test_bounds_and_retirements_reach_the_sidecar(make_target: Callable[..., Target]) -> None:
    data = child(make_target("complete"), "ConfigMap")["data"]
    tiers = SidecarConfig.model_validate_json(data["sidecar.json"]).tiers
    assert tiers is not None
    assert tiers.valkey is not None
    assert tiers.valkey.max_bytes == 40 * 2**30
    assert tiers.namespace_share == 0.5
    assert tiers.retired_path == Path("/etc/chiasm-namespaces/retired")
