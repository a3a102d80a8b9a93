"""Prometheus and promtool, which only `make e2e-prometheus` and the bench `dashboards` need.

Of its service discoveries only Kubernetes', files and fixed addresses: the others are most of what
a build would take.
"""

from __future__ import annotations

from chiasm_cluster.build.binaries import SOURCES as KUBE
from chiasm_cluster.build.module_program import ModuleProgram
from chiasm_cluster.host import requirements

PROMTOOL = "promtool"
PROGRAM = ModuleProgram(
    title="Prometheus",
    sources=KUBE.parent / "prometheus",
    module="github.com/prometheus/prometheus",
    package="cmd/prometheus",
    version_variable="github.com/prometheus/common/version.Version",
    minutes=11,
    disk_bytes=4 * requirements.GIB,
    also=(f"cmd/{PROMTOOL}",),
    tags="remove_all_sd,enable_kubernetes_sd",
)
