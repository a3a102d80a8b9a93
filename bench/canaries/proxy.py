"""The API server of a local cluster without certificates, on this machine."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from chiasm_tour.clusters import LocalCluster


@contextlib.contextmanager
def api_proxy(cluster: LocalCluster) -> Iterator[str]:
    """Its address, while the block runs."""
    command = [sys.executable, "-m", "chiasm_cluster", "kubectl", "--name", cluster.name, "--"]
    process = subprocess.Popen([*command, "proxy", "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield "http://" + process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait()
