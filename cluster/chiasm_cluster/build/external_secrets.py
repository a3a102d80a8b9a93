"""The controller of External Secrets, which only `make e2e-external-secrets` needs.

Later versions are many modules that find each other by their paths in one repository, which no
module elsewhere can require. This one serves the same `external-secrets.io/v1`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

from chiasm_cluster.build.binaries import SOURCES as KUBE
from chiasm_cluster.build.module_program import ModuleProgram
from chiasm_cluster.host import requirements

PROGRAM = ModuleProgram(
    title="External Secrets",
    sources=KUBE.parent / "external-secrets",
    module="github.com/external-secrets/external-secrets",
    package="",
    version_variable="",
    minutes=12,
    disk_bytes=8 * requirements.GIB,
)


def chart(into: Path) -> Path:
    """The module's own Helm chart, copied into the folder `into`.

    Left out is a chart of another server, which it depends on and a module does not hold.
    """
    folder = into / "external-secrets"
    shutil.copytree(PROGRAM.folder() / "deploy" / "charts" / "external-secrets", folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)  # Go's module cache is read-only
    (folder / "Chart.lock").unlink()
    described = yaml.safe_load((folder / "Chart.yaml").read_text())
    del described["dependencies"]
    (folder / "Chart.yaml").write_text(yaml.safe_dump(described))
    return folder


def definitions() -> list[Path]:
    """Its CustomResourceDefinitions, which its chart comes without."""
    bases = PROGRAM.folder() / "config" / "crds" / "bases"
    return sorted(bases.glob("*external-secrets.io_*.yaml"))
