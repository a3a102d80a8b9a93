"""Starts a cluster, or repairs what a crash left of it.

Every step looks first and does nothing when its work is done. When any node's supervisor or the
network is gone, all nodes start anew, as after a power cut: what the API server stored is kept,
pods are started again by the kubelet.
"""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from string import Template

from chiasm_cluster import teardown
from chiasm_cluster.build.binaries import ensure_binaries
from chiasm_cluster.errors import ClusterError
from chiasm_cluster.host import cgroups, kernel, network, requirements
from chiasm_cluster.host.commands import run
from chiasm_cluster.images import pause
from chiasm_cluster.images.store import ImageStore
from chiasm_cluster.node import carrier, control_plane, worker
from chiasm_cluster.state import Cluster, Node, all_clusters, checked_name, find, locked

_PATIENCE_SECONDS = 120.0
_DNS_MANIFEST = Path(__file__).parent / "node" / "dns.yaml"


def up(name: str, num_nodes: int, cache_dir: Path, say: Callable[[str], None]) -> Cluster:
    """Have cluster `name` running and ready.

    Raises: ClusterError when the machine lacks something or a part does not come up.
    """
    checked_name(name)
    requirements.require_linux()
    requirements.require_root()
    requirements.ensure_packages(requirements.TO_RUN, say)
    with locked(f"cluster-{checked_name(name)}"):
        cluster = find(name)
        if cluster is None:
            cluster = _new(name, num_nodes, cache_dir, ensure_binaries(cache_dir, say))
        elif cluster.num_nodes != num_nodes:
            raise ClusterError(
                f"Cluster {name!r} has {cluster.num_nodes} node(s), not {num_nodes}; take it down "
                f"first: python -m chiasm_cluster down --name {name}"
            )
        elif not cluster.binaries.is_dir():  # the cache folder was emptied
            teardown.stop(cluster)
            cluster = cluster.model_copy(update={"binaries": ensure_binaries(cache_dir, say)})
            cluster.save()
        if not _runs(cluster):
            say(f"Starting cluster {name!r} with {cluster.num_nodes} node(s).")
            _start(cluster)
        _wait_ready(cluster)
    return cluster


def _new(name: str, num_nodes: int, cache_dir: Path, binaries: Path) -> Cluster:
    """Choose addresses for a cluster and write its record, before anything else is made."""
    with locked("subnets"):
        others = all_clusters()
        cluster = Cluster(
            name=name,
            num_nodes=num_nodes,
            subnet=network.free_subnet(),
            cluster_dir=cache_dir / "clusters" / name,
            binaries=binaries,
            kernel_settings=others[0].kernel_settings if others else kernel.read_settings(),
            made_dirs=[Path(path) for path in worker.FIXED_PATHS if not Path(path).exists()],
        )
        cluster.save()
    shutil.rmtree(cluster.state_dir, ignore_errors=True)  # of before a reboot of the machine
    return cluster


def _runs(cluster: Cluster) -> bool:
    """Whether a start came to its end and nothing of what it made is gone."""
    return (
        all(carrier.find(node) for node in cluster.nodes)
        and all(worker.images_ready_file(node).exists() for node in cluster.nodes)
        and cluster.kubeconfig.exists()
        and network.is_whole(cluster)
    )


def _start(cluster: Cluster) -> None:
    """Start every node, after removing whatever an earlier start left."""
    teardown.stop(cluster)
    if not cluster.kubeconfig.exists():
        shutil.rmtree(cluster.state_dir, ignore_errors=True)  # what is stored knows other keys
        control_plane.write_credentials(cluster)
    for path in worker.FIXED_PATHS:
        Path(path).mkdir(parents=True, exist_ok=True)
    network.make(cluster)
    for node in cluster.nodes:
        _start_node(cluster, node)
    for node in cluster.nodes:
        images = ImageStore(worker.ctr(cluster, node))
        ensure_pause = partial(pause.ensure, cluster.binaries, images)
        _wait_for(f"the container runtime of {node.name}", ensure_pause, cluster)
        worker.images_ready_file(node).touch()


def _start_node(cluster: Cluster, node: Node) -> None:
    """Start everything that belongs to `node`."""
    shutil.rmtree(node.run_dir, ignore_errors=True)
    node.run_dir.mkdir(parents=True)
    cgroups.make(node.cgroup)
    worker.write_configuration(cluster, node)
    worker.plan(cluster, node).write(carrier.plan_file(node))
    carrier.start(node)


def _wait_ready(cluster: Cluster) -> None:
    """Wait until the API server, DNS, every node and the default service account are ready."""
    kubectl = cluster.kubectl
    names = {"DNS_SERVICE_ADDRESS": cluster.dns_service_address,
             "API_ADDRESS": cluster.api_address}  # fmt: skip
    manifest = Template(_DNS_MANIFEST.read_text()).substitute(names)

    def nodes_are_ready() -> bool:
        wanted = {node.name for node in cluster.nodes}
        return wanted <= _ready_nodes(run([*kubectl, "get", "nodes", "-o", "json"]))

    def runs(*arguments: str, stdin: str | None = None) -> Callable[[], bool]:
        return lambda: bool(run([*kubectl, "--request-timeout=5s", *arguments], stdin=stdin))

    _wait_for("the API server", runs("get", "--raw", "/readyz"), cluster)
    _wait_for("the DNS objects", runs("apply", "-f", "-", stdin=manifest), cluster)
    _wait_for("the cluster's DNS", lambda: _answers(control_plane.dns_ready_url(cluster)), cluster)
    _wait_for("the nodes", nodes_are_ready, cluster)
    _wait_for("the service account", runs("get", "serviceaccount", "default"), cluster)


def _answers(url: str) -> bool:
    """Whether a GET of `url` succeeds."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 -- an address of ours
            return bool(answer.status == HTTPStatus.OK)
    except OSError:
        return False


def _ready_nodes(node_list: str) -> set[str]:
    """The names of the nodes that say they are ready."""
    return {
        item["metadata"]["name"]
        for item in json.loads(node_list)["items"]
        for condition in item["status"].get("conditions", [])
        if condition["type"] == "Ready" and condition["status"] == "True"
    }


def _wait_for(what: str, holds: Callable[[], bool], cluster: Cluster) -> None:
    """Wait until `holds`; a failing command counts as "not yet".

    Raises: ClusterError naming `what`, the last failure and the folder with the logs.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    logs = cluster.nodes[0].state_dir / "logs"
    failure = ""
    while True:
        try:
            if holds():
                return
        except ClusterError as error:
            failure = f" Last failure: {error}"
        for node in cluster.nodes:
            if carrier.find(node) is None:
                raise ClusterError(f"The supervisor of {node.name} ended; its log is in {logs}.")
        if time.monotonic() > deadline:
            raise ClusterError(
                f"Waited {_PATIENCE_SECONDS:.0f} s for {what} of cluster {cluster.name!r}; the "
                f"logs are in {logs}.{failure}"
            )
        time.sleep(0.2)
