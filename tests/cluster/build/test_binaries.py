from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from chiasm_cluster.build import binaries
from chiasm_cluster.errors import ClusterError


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    return Path(shutil.copytree(binaries.SOURCES, tmp_path / "kube"))


def test_the_digest_follows_sources_and_sums_and_nothing_else(sources: Path) -> None:
    before = binaries.digest(sources)
    (sources / "README.md").write_text("words")
    (sources / "main_test.go").write_text("package main")
    assert binaries.digest(sources) == before == binaries.digest()
    for name in ("main.go", "go.sum", "runtime/go.mod", "pause/main.go"):
        path = sources / name
        text = path.read_text()
        path.write_text(text + "\n")
        assert binaries.digest(sources) != before, name
        path.write_text(text)


def test_versions_come_from_the_module_files(sources: Path) -> None:
    go_mod = sources / "go.mod"
    version = binaries.module_version(go_mod, "k8s.io/kubernetes")
    kubernetes = binaries.targets(sources)[0]
    assert f"gitVersion={version} " in kubernetes.flags
    with pytest.raises(ClusterError, match="does not require example"):
        binaries.module_version(go_mod, "example.com/absent")


def test_only_the_runtime_that_filters_system_calls_is_linked_with_c() -> None:
    assert [target.part for target in binaries.targets() if target.uses_c] == ["runc"]
    assert next(t for t in binaries.targets() if t.uses_c).tags == "seccomp"


def test_sums_are_committed_for_every_module() -> None:
    for go_mod in binaries.SOURCES.rglob("go.mod"):
        assert (go_mod.parent / "go.sum").stat().st_size > 0


def test_no_go_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"Go was not found; install Go 1\.26 or newer"):
        binaries.find_go(str(tmp_path))


def test_an_old_go_is_a_sentence(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho go1.20.3\n")
    go.chmod(0o755)
    with pytest.raises(ClusterError, match=r"needs Go 1\.26 and .* is go1\.20\.3; install"):
        binaries.find_go(str(tmp_path))


@pytest.mark.cluster
def test_every_program_is_there_and_the_binary_knows_each_name(cache_dir: Path) -> None:
    folder = binaries.ensure_binaries(cache_dir, print)
    unknown = subprocess.run([folder / "kube"], capture_output=True, text=True, check=False)
    assert unknown.returncode == 2
    known = unknown.stderr.rpartition(": ")[2].strip().removesuffix(".").split(", ")
    links = sorted(path.name for path in folder.iterdir() if path.is_symlink())
    assert links == known
    for name in ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "bridge", "pause"):
        assert (folder / name).stat().st_mode & 0o111


@pytest.mark.cluster
def test_the_pause_program_sleeps_until_it_is_told_to_end(cache_dir: Path) -> None:
    program = binaries.ensure_binaries(cache_dir, print) / "pause"
    with subprocess.Popen([program]) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.3)
        process.terminate()
        assert process.wait(timeout=10) == 0
