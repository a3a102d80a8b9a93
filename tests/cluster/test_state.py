from __future__ import annotations

import ipaddress
from itertools import combinations
from pathlib import Path

import pytest
from chiasm_cluster.errors import ClusterError
from chiasm_cluster.state import Cluster, checked_name, find, required
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?", fullmatch=True)


def cluster(name: str = "chiasm", num_nodes: int = 2, subnet: int = 90) -> Cluster:
    return Cluster(
        name=name,
        num_nodes=num_nodes,
        subnet=subnet,
        cluster_dir=Path("/cache/clusters") / name,
        binaries=Path("/cache/kubernetes/0123"),
    )


@given(NAMES)
def test_every_allowed_name_fits_the_kernels_limits(name: str) -> None:
    made = cluster(checked_name(name))
    assert len(made.host_interface) <= 15
    assert all(len(str(node.containerd_socket)) <= 107 for node in made.nodes)


@given(NAMES, NAMES)
def test_clusters_of_different_names_share_no_name(one: str, other: str) -> None:
    if one == other:
        return
    taken = [
        {c.switch_namespace, c.host_interface, *(node.namespace for node in c.nodes)}
        for c in (cluster(one), cluster(other))
    ]
    assert not taken[0] & taken[1]


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a/b", "..", "x" * 31])
def test_a_name_that_could_leave_its_folder_is_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="cannot name a cluster; use 1 to 30 lower-case"):
        checked_name(name)


def test_the_parts_of_a_clusters_network_do_not_overlap() -> None:
    made = cluster()
    nodes = ipaddress.ip_network(f"10.{made.subnet}.0.0/24")
    parts = [nodes, *map(ipaddress.ip_network, [made.pod_network, made.service_network])]
    assert not any(one.overlaps(other) for one, other in combinations(parts, 2))
    assert all(part.subnet_of(made.network) for part in parts)
    pods = ipaddress.ip_network(made.pod_network)
    assert all(ipaddress.ip_network(node.pod_network).subnet_of(pods) for node in made.nodes)
    assert ipaddress.ip_address(made.dns_service_address) in ipaddress.ip_network(
        made.service_network
    )


def test_a_record_comes_back_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("chiasm_cluster.state.RUN_DIR", tmp_path)
    assert find("chiasm") is None
    with pytest.raises(ClusterError, match="python -m chiasm_cluster up --name chiasm"):
        required("chiasm")
    made = cluster()
    made.save()
    assert find("chiasm") == made
