from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from chiasm_cluster import state
from chiasm_cluster.errors import ClusterError
from chiasm_cluster.host import network


def record(name: str, subnet: int) -> state.Cluster:
    return state.Cluster(
        name=name, num_nodes=1, subnet=subnet, cluster_dir=Path("/c"), binaries=Path("/b")
    )


def test_a_subnet_is_free_of_routes_and_of_other_clusters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("chiasm_cluster.state.RUN_DIR", tmp_path)
    first = network.free_subnet()
    record("other", first).save()
    second = network.free_subnet()
    assert first != second
    routes = json.loads(
        subprocess.run(
            ["ip", "-json", "-4", "route"], capture_output=True, text=True, check=True
        ).stdout
    )
    assert not any(route["dst"].startswith((f"10.{first}.", f"10.{second}.")) for route in routes)


def test_no_free_subnet_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("chiasm_cluster.state.RUN_DIR", tmp_path)
    for subnet in range(89, 128):
        record(f"c{subnet}", subnet).save()
    with pytest.raises(ClusterError, match="are in use on this machine; take another cluster down"):
        network.free_subnet()
