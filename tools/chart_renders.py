"""Golden renders of the chart, made with the local cluster's own helm once that is built."""

from __future__ import annotations

import subprocess
from pathlib import Path

from chiasm_cluster.build.binaries import digest
from chiasm_cluster.settings import Settings

RENDERS = {"defaults": [], "all-options": ["--values", "charts/chiasm/ci/all-options.yaml"]}


def helm() -> Path | None:
    """The local cluster's helm, when it is built."""
    path = Settings().cache_dir / "kubernetes" / digest() / "helm"
    return path if path.exists() else None


def outputs(root: Path) -> dict[Path, str]:
    program = helm()
    if program is None:
        print("generate: the chart's renders are left as they are: helm is not built yet")
        return {}
    return {
        root / "tests" / "golden" / f"chart-{name}.yaml": render(program, root, *options)
        for name, options in RENDERS.items()
    }


def render(program: Path, root: Path, *options: str) -> str:
    """The chart's manifests as `helm install chiasm -n chiasm-system` would send them."""
    command = [str(program), "template", "chiasm", "charts/chiasm", "-n", "chiasm-system"]
    ran = subprocess.run([*command, *options], cwd=root, check=True, capture_output=True, text=True)
    return ran.stdout
