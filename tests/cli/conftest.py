"""The sidecar's scripted worker, for what the command line asks of a server."""

from tests.sidecar.conftest import start_pod, worker

__all__ = ["start_pod", "worker"]
