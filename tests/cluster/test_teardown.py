"""What `down` leaves behind: nothing, whatever happened before."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chiasm_cluster import state, teardown
from chiasm_cluster.host import cgroups, kernel, network

pytestmark = pytest.mark.cluster

POD = """
apiVersion: v1
kind: Pod
metadata: {name: busy}
spec:
  containers:
    - name: busy
      image: chiasm.dev/pause:1
      ports: [{containerPort: 8080, hostPort: 18080}]
      volumeMounts: [{name: memory, mountPath: /memory}]
  volumes: [{name: memory, emptyDir: {medium: Memory}}]
"""


def start_busy(cluster: Any) -> None:
    """A cluster with a pod that holds a mount, a port rule, a network and processes."""
    cluster.up(num_nodes=1)
    cluster.kubectl("apply", "-f", "-", stdin=POD)
    cluster.kubectl("wait", "pod/busy", "--for=condition=Ready", "--timeout=60s")


@pytest.mark.parametrize("crashed", [False, True], ids=["running", "crashed"])
def test_down_leaves_nothing(
    crashed: bool, machine: Any, cli: Callable[..., str], make_cluster: Callable[[str], Any]
) -> None:
    cluster = make_cluster("selftest-down")
    settings = kernel.read_settings()
    before = machine.traces(cluster.name)
    start_busy(cluster)
    record = cluster.record
    namespaces = machine.process_namespaces(record)
    during = machine.traces(cluster.name)
    assert len(machine.processes_in(namespaces)) > 8
    for kind in ("interfaces", "routes", "network namespaces", "control groups", "processes"):
        assert during[kind] - before[kind], f"the test sees no {kind} of a running cluster"
    if crashed:
        cluster.kill_everything()
    cli("down", "--name", cluster.name)
    assert machine.traces(cluster.name) == before
    assert machine.processes_in(namespaces) == []
    assert not record.state_dir.exists()
    if not state.all_clusters():
        assert kernel.read_settings() == settings


def test_down_removes_what_a_half_finished_up_left(
    machine: Any, cli: Callable[..., str], make_cluster: Callable[[str], Any], cache_dir: Path
) -> None:
    name = make_cluster("selftest-half").name
    before = machine.traces(name)
    record = state.Cluster(
        name=name,
        num_nodes=2,
        subnet=network.free_subnet(),
        cluster_dir=cache_dir / "clusters" / name,
        binaries=cache_dir,
    )
    record.save()
    network.make(record)
    cgroups.make(record.nodes[0].cgroup)
    assert machine.traces(name) != before
    cli("down", "--name", name)
    assert machine.traces(name) == before


def test_down_of_a_cluster_that_is_not_there_says_so(cli: Callable[..., str]) -> None:
    assert cli("down", "--name", "never-was") == "Cluster 'never-was' is not up.\n"


def test_a_second_cluster_comes_and_goes_without_touching_the_first(
    two_nodes: Any, cli: Callable[..., str], make_cluster: Callable[[str], Any], machine: Any
) -> None:
    first = two_nodes.record
    before = machine.processes_in(machine.process_namespaces(first))
    second = make_cluster("selftest-other")
    second.up(num_nodes=1)
    assert not second.record.network.overlaps(first.network)
    second.kubectl("create", "namespace", "only-here")
    names = json.loads(two_nodes.kubectl("get", "namespaces", "-o", "json"))["items"]
    assert "only-here" not in {item["metadata"]["name"] for item in names}
    cli("down", "--name", second.name)
    assert network.is_whole(first)
    after = machine.processes_in(machine.process_namespaces(first))
    assert {process for process in before if process.alive} <= set(after)
    assert two_nodes.kubectl("get", "--raw", "/readyz") == "ok"


def test_purge_deletes_the_images_too(
    cli: Callable[..., str], make_cluster: Callable[[str], Any], cache_dir: Path
) -> None:
    name = make_cluster("selftest-purge").name
    folder = cache_dir / "clusters" / name / "images"
    folder.mkdir(parents=True)
    cli("down", "--name", name)
    assert folder.exists()
    cli("down", "--name", name, "--purge")
    assert not folder.parent.exists()


def test_an_interrupted_purge_leaves_no_half_of_the_images(
    make_cluster: Callable[[str], Any], cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = make_cluster("selftest-purge").name
    folder = cache_dir / "clusters" / name
    for part in ("images/metadata.db", "images/snapshots/1"):
        (folder / part).mkdir(parents=True)

    def interrupted(path: Path) -> None:
        (path / "images" / "metadata.db").rmdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            teardown.down(name, cache_dir, print, purge=True)
    assert not folder.exists(), "a cluster of this name begins anew"
    folder.mkdir()
    teardown.down(name, cache_dir, print, purge=True)
    assert list(folder.parent.glob(f"{name}*")) == []
