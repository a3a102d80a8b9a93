"""Stops a cluster and removes every trace of it from the machine.

Works from the record and the names derived from it alone, so it also removes what a crashed or
half-finished `up` left behind. Images stay in the cache folder unless they are purged.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from chiasm_cluster.errors import ClusterError
from chiasm_cluster.host import cgroups, kernel, network, requirements
from chiasm_cluster.node import carrier
from chiasm_cluster.state import Cluster, all_clusters, checked_name, find, locked


def down(name: str, cache_dir: Path, say: Callable[[str], None], *, purge: bool = False) -> None:
    """Stop cluster `name` and leave nothing of it but, unless `purge`, its images.

    Raises: ClusterError when something cannot be removed.
    """
    requirements.require_root()
    with locked(f"cluster-{checked_name(name)}"):
        cluster = find(name)
        if cluster is None:
            say(f"Cluster {name!r} is not up.")
        else:
            stop(cluster)
            shutil.rmtree(cluster.state_dir, ignore_errors=True)
            _forget(cluster)
            say(f"Cluster {name!r} is down.")
        if purge:
            _delete(cluster.cluster_dir if cluster else cache_dir / "clusters" / name)
            say("Its images are deleted.")


def stop(cluster: Cluster) -> None:
    """End every process; remove control groups and network. What is stored stays."""
    for node in cluster.nodes:
        carrier.end(node)
    for node in cluster.nodes:
        cgroups.remove(node.cgroup)
    network.remove(cluster)


def _delete(folder: Path) -> None:
    """Delete a folder, which is whole or gone: with half of its files a container runtime would
    begin, and refuse images later."""
    doomed = folder.with_name(f"{folder.name}.deleted")
    try:
        if doomed.exists():  # an interrupted one left it
            shutil.rmtree(doomed)
        if folder.exists():
            folder.rename(doomed)
            shutil.rmtree(doomed)
    except OSError as error:
        raise ClusterError(f"{error.filename}: cannot be deleted: {error.strerror}.") from error


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
