"""metrics-server, which only `make e2e-metrics` needs."""

from __future__ import annotations

from chiasm_cluster.build.binaries import SOURCES as KUBE
from chiasm_cluster.build.module_program import ModuleProgram
from chiasm_cluster.host import requirements

PROGRAM = ModuleProgram(
    title="metrics-server",
    sources=KUBE.parent / "metrics",
    module="sigs.k8s.io/metrics-server",
    package="cmd/metrics-server",
    version_variable="k8s.io/client-go/pkg/version.gitVersion",
    minutes=4,
    disk_bytes=3 * requirements.GIB,
)
