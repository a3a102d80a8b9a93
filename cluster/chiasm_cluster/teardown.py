"""Stops a cluster and removes every trace of it from the machine.

Works from the record and the names derived from it alone, so it also removes what a crashed or
half-finished `up` left behind. Images stay in the cache folder unless they are purged.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from chiasm_cluster.host import cgroups, kernel, network, processes, requirements
from chiasm_cluster.host.processes import Process
from chiasm_cluster.state import RUN_DIR, Cluster, Node, all_clusters, find, locked

_GRACE_SECONDS = 15.0


def down(name: str, cache_dir: Path, say: Callable[[str], None], *, purge: bool = False) -> None:
    """Stop cluster `name` and leave nothing of it but, unless `purge`, its images.

    Raises: ClusterError when something cannot be removed.
    """
    requirements.require_root()
    with locked(name):
        cluster = find(name)
        if cluster is None:
            say(f"Cluster {name!r} is not up.")
        else:
            stop(cluster)
            shutil.rmtree(cluster.state_dir, ignore_errors=True)
            _forget(cluster)
            say(f"Cluster {name!r} is down.")
        if purge:
            folder = cluster.cluster_dir if cluster else cache_dir / "clusters" / name
            shutil.rmtree(folder, ignore_errors=True)
            say("Its images are deleted.")
    (RUN_DIR / f".{name}.lock").unlink(missing_ok=True)


def stop(cluster: Cluster) -> None:
    """End every process; remove control groups and network. What is stored stays."""
    for node in cluster.nodes:
        _end(node)
    for node in cluster.nodes:
        cgroups.remove(node.cgroup)
    network.remove(cluster)


def _end(node: Node) -> None:
    """End the node's supervisor, and with it all processes and mounts of the node."""
    carrier = Process.read(node.run_dir / "supervisor.pid")
    if carrier is None:
        return
    for supervisor in carrier.children():
        supervisor.send(signal.SIGTERM)
    if not carrier.wait_gone(_GRACE_SECONDS):
        processes.kill(carrier)


def _forget(cluster: Cluster) -> None:
    """Remove the record and, when it was the last cluster, what all clusters share."""
    with locked("subnets"):
        shutil.rmtree(cluster.run_dir, ignore_errors=True)
        others = all_clusters()
        if others:
            _hand_over(cluster, others[0])
            return
        kernel.restore_settings(cluster.kernel_settings)
        for path in cluster.made_dirs:
            with suppress(OSError):  # not empty: somebody else uses it
                path.rmdir()


def _hand_over(leaving: Cluster, staying: Cluster) -> None:
    """Let `staying` remove later what `leaving` had made for all."""
    made = [*staying.made_dirs, *leaving.made_dirs]
    staying.model_copy(update={"made_dirs": made}).save()
