"""Builds the cluster's programs, once per digest of their sources, into the cache folder.

A build goes into a folder of its own that is renamed when everything is there: a half-built state
is never used, and what an interrupted build compiled is still in Go's own cache.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chiasm_cluster import cache
from chiasm_cluster.errors import ClusterError
from chiasm_cluster.host import requirements
from chiasm_cluster.host.commands import run
from chiasm_cluster.progress import Progress, run_shown
from chiasm_cluster.state import locked

SOURCES = Path(__file__).resolve().parents[2] / "kube"
_GO_MINIMUM = (1, 26)
_DISK_BYTES = 8 * requirements.GIB
_LINKS = (
    "coredns", "etcd", "helm", "kube-apiserver", "kube-controller-manager", "kube-proxy",
    "kube-scheduler", "kubectl", "kubelet",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """One `go build`: packages of the module in `folder`, linked with `flags`."""

    part: str
    folder: Path
    packages: tuple[str, ...]
    flags: str = "-s -w"
    tags: str = ""
    uses_c: bool = False

    def command(self, go: str, output: Path) -> list[str]:
        """The command that builds it into folder `output`."""
        tags = ["-tags", self.tags] if self.tags else []
        return [go, "build", "-v", "-trimpath", *tags, "-ldflags", self.flags, "-o", f"{output}/",
                *self.packages]  # fmt: skip


def targets(sources: Path = SOURCES) -> list[Target]:
    """Everything that is built, from the module files' versions."""
    version = module_version(sources / "go.mod", "k8s.io/kubernetes")
    major, minor, _ = version.removeprefix("v").split(".")
    stamp = "k8s.io/component-base/version"
    runtime = sources / "runtime"
    containerd = "github.com/containerd/containerd/v2"
    cni = "github.com/containernetworking/plugins/plugins"
    return [
        Target(
            f"Kubernetes {version}", sources, (".", "./pause"),
            f"-s -w -X {stamp}.gitVersion={version} -X {stamp}.gitMajor={major} "
            f"-X {stamp}.gitMinor={minor}",
        ),
        Target(
            "containerd", runtime,
            tuple(f"{containerd}/cmd/{name}"
                  for name in ("containerd", "containerd-shim-runc-v2", "ctr")),
            f"-s -w -X {containerd}/version.Version="
            f"{module_version(runtime / 'go.mod', containerd)}",
        ),
        Target(
            "network plugins", runtime,
            tuple(f"{cni}/{name}"
                  for name in ("ipam/host-local", "main/bridge", "main/loopback", "meta/portmap")),
        ),
        Target("runc", runtime, ("github.com/opencontainers/runc",), tags="seccomp", uses_c=True),
    ]  # fmt: skip


def module_version(go_mod: Path, module: str) -> str:
    """The version of `module` that the module file requires.

    Raises: ClusterError when it does not.
    """
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", go_mod.read_text(), re.M)
    if found is None:
        raise ClusterError(f"{go_mod} does not require {module}; restore the file from git.")
    return found[1]


def digest(sources: Path = SOURCES) -> str:
    """The digest of the module files, their sums, our Go code and how it is built."""
    state = hashlib.sha256()
    files = [
        path
        for path in sorted(sources.rglob("*"))
        if path.is_file() and path.suffix in {".go", ".mod", ".sum"} and "_test" not in path.stem
    ]
    for path in files:
        state.update(f"{path.relative_to(sources)}\0".encode() + path.read_bytes())
    for target in targets(sources):
        state.update(repr(target.command("go", Path("out"))).encode())
    return state.hexdigest()[:16]


def ensure_binaries(cache_dir: Path, say: Callable[[str], None]) -> Path:
    """The folder with all programs, building them when they are not there.

    Raises: ClusterError when the machine lacks something or a build fails.
    """
    folder = cache_dir / "kubernetes" / digest()
    if folder.is_dir():
        cache.use(folder)
        return folder
    go = find_go()
    requirements.ensure_packages(requirements.TO_BUILD, say)
    requirements.require_disk(cache_dir, _DISK_BYTES, "Building Kubernetes")
    with locked("build"):
        if not folder.is_dir():
            say("Building Kubernetes from its Go modules: about 8 minutes on 2 cores, once.")
            _build(go, folder)
            cache.prune(folder.parent)
    return folder


def _build(go: str, folder: Path) -> None:
    """Build everything into `folder`, which appears only when complete."""
    unfinished = folder.with_name(folder.name + ".building")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for target in targets():
        compile_into(unfinished, target, go)
    for name in _LINKS:
        (unfinished / name).symlink_to("kube")
    unfinished.rename(folder)


def compile_into(output: Path, target: Target, go: str) -> None:
    """Build one target into the folder `output`.

    Raises: ClusterError with the compiler's last words when it fails.
    """
    environment = {**os.environ, "CGO_ENABLED": "01"[target.uses_c], "GOWORK": "off",
                   "GOFLAGS": "-buildvcs=false -mod=readonly"}  # fmt: skip
    with Progress(target.part) as progress:
        describe = _Packages(num_packages(go, target, environment))
        run_shown(
            target.command(go, output), progress, describe,
            cwd=target.folder, environment=environment,
        )  # fmt: skip


class _Packages:
    """Turns the lines of `go build -v` into "123 of 2456 packages, at k8s.io/..."."""

    def __init__(self, num_total: int) -> None:
        self._num_total = num_total
        self._num_done = 0

    def __call__(self, line: str) -> str:
        if line.startswith("go: downloading"):
            return line.removeprefix("go: ").strip()
        self._num_done += 1
        return f"{self._num_done} of at most {self._num_total} packages, at {line.strip()}"


def num_packages(go: str, target: Target, environment: Mapping[str, str]) -> int:
    """How many packages `target` consists of."""
    tags = ["-tags", target.tags] if target.tags else []
    listed: Sequence[str] = run(
        ["env", "-C", target.folder, *(f"{key}={environment[key]}" for key in
                                       ("CGO_ENABLED", "GOWORK", "GOFLAGS")),
         go, "list", *tags, "-deps", *target.packages],
        timeout=1800,
    ).splitlines()  # fmt: skip
    return len(listed)


def find_go(path: str | None = None) -> str:
    """The Go toolchain, sought on `path` (PATH and the usual places when None).

    Raises: ClusterError when there is none or it is too old.
    """
    wanted = ".".join(map(str, _GO_MINIMUM))
    how = f"install Go {wanted} or newer (https://go.dev/dl/) and put it on PATH."
    usual = requirements.find_program("go") or shutil.which("/usr/local/go/bin/go")
    go = usual if path is None else shutil.which("go", path=path)
    if go is None:
        raise ClusterError(f"The local Kubernetes is built from source and Go was not found; {how}")
    version = run([go, "env", "GOVERSION"]).strip()
    found = re.match(r"go(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < _GO_MINIMUM:
        raise ClusterError(f"Kubernetes needs Go {wanted} and {go} is {version}; {how}")
    return go
