"""The control groups under which a node's kubelet keeps its pods, in both versions of cgroups.

Version 1 has one tree per controller, version 2 a single one; the node has one group of the same
name in each tree. Groups can only be removed once no process is in them.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from chiasm_cluster.errors import ClusterError

ROOT = Path("/sys/fs/cgroup")
_V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")


def trees(root: Path = ROOT) -> list[Path]:
    """The top folder of each hierarchy."""
    if (root / "cgroup.controllers").exists():
        return [root]
    return sorted(
        path
        for path in root.iterdir()
        if not path.is_symlink() and (path / "cgroup.procs").exists()
    )


def make(name: str, root: Path = ROOT) -> None:
    """Make the group `name` in every hierarchy."""
    for tree in trees(root):
        subtree_control = tree / "cgroup.subtree_control"
        if subtree_control.exists():
            for controller in _V2_CONTROLLERS:
                with suppress(OSError):  # a controller that the kernel lacks is not needed
                    subtree_control.write_text(f"+{controller}")
        (tree / name).mkdir(exist_ok=True)


def remove(name: str, root: Path = ROOT, patience_seconds: float = 10) -> None:
    """Remove the group `name` and all below it from every hierarchy.

    Raises: ClusterError when processes stay in one of them.
    """
    deadline = time.monotonic() + patience_seconds
    for tree in trees(root):
        top = tree / name
        while top.exists():
            left = _remove_tree(top)
            if not left:
                break
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"The control group {left} still holds processes after "
                    f"{patience_seconds:.0f} s; see {left}/cgroup.procs."
                )
            time.sleep(0.05)


def _remove_tree(top: Path) -> Path | None:
    """Remove `top` and all below, deepest first; the group that could not go, if any."""
    groups = [path for path in top.rglob("*") if path.is_dir()]
    for group in [*sorted(groups, key=lambda path: len(path.parts), reverse=True), top]:
        try:
            group.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return group
    return None
