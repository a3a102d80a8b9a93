from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import yaml
from chiasm_cluster import state
from chiasm_cluster.node import component, control_plane, worker


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> state.Cluster:
    monkeypatch.setattr("chiasm_cluster.state.RUN_DIR", tmp_path / "run")
    made = state.Cluster(
        name="x", num_nodes=2, subnet=90, cluster_dir=tmp_path / "x", binaries=Path("/bin/kube")
    )
    for node in made.nodes:
        worker.write_configuration(made, node)
    return made


def test_everything_a_node_writes_lies_in_folders_of_its_own(cluster: state.Cluster) -> None:
    node = cluster.nodes[1]
    text = (node.state_dir / "containerd.toml").read_text()
    containerd = tomllib.loads(text)
    own = (str(node.state_dir), str(node.run_dir), str(node.image_dir))
    assert containerd["root"].startswith(own)
    assert containerd["state"].startswith(own)
    assert containerd["grpc"]["address"].startswith(own)
    kubelet = yaml.safe_load((node.state_dir / "kubelet.yaml").read_text())
    assert kubelet["podLogsDir"].startswith(own)
    assert kubelet["volumePluginDir"].startswith(own)
    assert kubelet["cgroupRoot"] == f"/{node.cgroup}"
    plan = worker.plan(cluster, node)
    assert {bind.target for bind in plan.binds} == set(worker.FIXED_PATHS)
    assert all(bind.source.startswith(own) for bind in plan.binds)


def test_the_users_disk_and_images_are_never_cleaned_up(cluster: state.Cluster) -> None:
    kubelet = yaml.safe_load((cluster.nodes[0].state_dir / "kubelet.yaml").read_text())
    assert set(kubelet["evictionHard"].values()) == {"0%"}
    assert kubelet["imageGCHighThresholdPercent"] == 100


def test_pods_get_addresses_of_their_node_and_no_way_out(cluster: state.Cluster) -> None:
    for node in cluster.nodes:
        plugins = json.loads((node.state_dir / "cni" / "10-pods.conflist").read_text())["plugins"]
        bridge = plugins[0]
        assert bridge["ipam"]["ranges"] == [[{"subnet": node.pod_network}]]
        assert bridge["ipMasq"] is False


def test_only_the_first_node_runs_the_control_plane(cluster: state.Cluster) -> None:
    control_plane.write_credentials(cluster)
    first, second = (
        {part.name for part in worker.plan(cluster, node).components} for node in cluster.nodes
    )
    assert second == {"containerd", "kubelet", "kube-proxy"}
    assert first - second == {
        "coredns", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler",
    }  # fmt: skip


def test_a_plan_comes_back_as_it_was(cluster: state.Cluster, tmp_path: Path) -> None:
    control_plane.write_credentials(cluster)
    plan = worker.plan(cluster, cluster.nodes[0])
    plan.write(tmp_path / "plan.json")
    assert component.NodePlan.read(tmp_path / "plan.json") == plan


def test_the_administrators_file_is_the_last_credential(cluster: state.Cluster) -> None:
    control_plane.write_credentials(cluster)
    last = cluster.kubeconfig.stat().st_mtime_ns
    written = [path.stat().st_mtime_ns for path in control_plane.pki_dir(cluster).iterdir()]
    assert max(written) <= last
