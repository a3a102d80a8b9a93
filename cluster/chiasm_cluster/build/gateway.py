"""Envoy Gateway, which only `make e2e-gateway` needs."""

from __future__ import annotations

import shutil
from pathlib import Path

from chiasm_cluster.build.binaries import SOURCES as KUBE
from chiasm_cluster.build.module_program import ModuleProgram
from chiasm_cluster.host import requirements

_MODULE = "github.com/envoyproxy/gateway"
PROGRAM = ModuleProgram(
    title="Envoy Gateway",
    sources=KUBE.parent / "gateway",
    module=_MODULE,
    package="cmd/envoy-gateway",
    version_variable=f"{_MODULE}/internal/cmd/version.envoyGatewayVersion",
    minutes=8,
    disk_bytes=6 * requirements.GIB,
)


def chart(into: Path, image: str) -> Path:
    """The module's own Helm chart, copied into the folder `into` and filled in for `image`."""
    folder = into / "gateway-helm"
    shutil.copytree(PROGRAM.charts() / "gateway-helm", folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)  # Go's module cache is read-only
    values = (folder / "values.tmpl.yaml").read_text()
    values = values.replace("${GatewayImagePullPolicy}", "Never").replace("${GatewayImage}", image)
    (folder / "values.yaml").write_text(values)
    return folder
