from __future__ import annotations

from pathlib import Path

import pytest
from chiasm_cluster.host import cgroups


def hierarchy(root: Path, name: str, version: int) -> Path:
    tree = root / name if name else root
    tree.mkdir(exist_ok=True)
    (tree / "cgroup.procs").touch()
    if version == 2:
        (tree / "cgroup.controllers").write_text("cpu memory")
        (tree / "cgroup.subtree_control").touch()
    return tree


def test_version_1_has_a_group_in_every_hierarchy_and_none_behind_links(tmp_path: Path) -> None:
    trees = [hierarchy(tmp_path, name, 1) for name in ("cpu", "memory", "unified")]
    (tmp_path / "cpu,cpuacct").symlink_to("cpu")
    cgroups.make("chiasm-x-1", tmp_path)
    assert sorted(path.parent for path in tmp_path.glob("*/chiasm-x-1")) == sorted(
        [*trees, tmp_path / "cpu,cpuacct"]
    )
    assert cgroups.trees(tmp_path) == sorted(trees)


def test_version_2_has_one_group_with_the_controllers_handed_down(tmp_path: Path) -> None:
    tree = hierarchy(tmp_path, "", 2)
    cgroups.make("chiasm-x-1", tmp_path)
    assert (tree / "chiasm-x-1").is_dir()
    assert (tree / "cgroup.subtree_control").read_text() == "+pids"  # the last one written


def test_a_group_goes_with_all_below_it_and_its_neighbours_stay(tmp_path: Path) -> None:
    tree = hierarchy(tmp_path, "cpu", 1)
    (tree / "chiasm-x-1" / "kubepods" / "besteffort" / "pod1").mkdir(parents=True)
    (tree / "chiasm-x-10").mkdir()
    cgroups.remove("chiasm-x-1", tmp_path)
    cgroups.remove("chiasm-x-1", tmp_path)
    assert [path.name for path in tree.iterdir() if path.is_dir()] == ["chiasm-x-10"]


def test_a_group_that_does_not_go_is_named(tmp_path: Path) -> None:
    tree = hierarchy(tmp_path, "cpu", 1)
    stuck = tree / "chiasm-x-1" / "kubepods"
    stuck.mkdir(parents=True)
    (stuck / "busy").touch()
    with pytest.raises(cgroups.ClusterError, match="kubepods still holds processes"):
        cgroups.remove("chiasm-x-1", tmp_path, patience_seconds=0)
