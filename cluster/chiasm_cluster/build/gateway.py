"""Builds Envoy Gateway from its Go module, once per digest of the module files.

Only `make e2e-gateway` needs it: about 8 minutes on 2 cores the first time.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from chiasm_cluster import cache
from chiasm_cluster.build.binaries import SOURCES as KUBE
from chiasm_cluster.build.binaries import Target, compile_into, find_go, module_version
from chiasm_cluster.host import requirements
from chiasm_cluster.host.commands import run
from chiasm_cluster.state import locked

SOURCES = KUBE.parent / "gateway"
MODULE = "github.com/envoyproxy/gateway"
PROGRAM = "envoy-gateway"
_DISK_BYTES = 6 * requirements.GIB


def version() -> str:
    """The version of Envoy Gateway that the module file requires."""
    return module_version(SOURCES / "go.mod", MODULE)


def target() -> Target:
    """What is built."""
    stamp = f"{MODULE}/internal/cmd/version.envoyGatewayVersion={version()}"
    part = f"Envoy Gateway {version()}"
    return Target(part, SOURCES, (f"{MODULE}/cmd/{PROGRAM}",), f"-s -w -X {stamp}")


def digest() -> str:
    """The digest of the module files and how it is built."""
    state = hashlib.sha256(repr(target().command("go", Path("out"))).encode())
    for name in ("go.mod", "go.sum"):
        state.update((SOURCES / name).read_bytes())
    return state.hexdigest()[:16]


def ensure_program(cache_dir: Path, say: Callable[[str], None]) -> Path:
    """The program, built when it is not there.

    Raises: ClusterError when there is no Go or the build fails.
    """
    folder = cache_dir / "gateway" / digest()
    if not folder.is_dir():
        go = find_go()
        requirements.require_disk(cache_dir, _DISK_BYTES, "Building Envoy Gateway")
        with locked("build-gateway"):
            if not folder.is_dir():
                say("Building Envoy Gateway from its Go module: about 8 minutes on 2 cores, once.")
                _build(go, folder)
                cache.prune(folder.parent)
    cache.use(folder)
    return folder / PROGRAM


def _build(go: str, folder: Path) -> None:
    """Build into `folder`, which appears only when complete."""
    unfinished = folder.with_name(folder.name + ".building")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    compile_into(unfinished, target(), go)
    unfinished.rename(folder)


def chart(into: Path, image: str) -> Path:
    """The module's own Helm chart, copied into the folder `into` and filled in for `image`."""
    module = run(
        ["env", "-C", SOURCES, find_go(), "list", "-m", "-f", "{{.Dir}}", MODULE], timeout=600
    )
    folder = into / "gateway-helm"
    shutil.copytree(Path(module.strip()) / "charts" / "gateway-helm", folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)  # Go's module cache is read-only
    values = (folder / "values.tmpl.yaml").read_text()
    values = values.replace("${GatewayImagePullPolicy}", "Never").replace("${GatewayImage}", image)
    (folder / "values.yaml").write_text(values)
    return folder
