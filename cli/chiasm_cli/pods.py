"""The pods of a resource, and the port of each by which it tells of itself.

Must not know: what is asked there.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from chiasm_contract import names

from chiasm_cli import servers
from chiasm_cli.errors import CliError
from chiasm_cli.kubectl import Kubectl

# A pod's port of metrics and state, where it is on this machine.
DEFAULT_URL = f"http://127.0.0.1:{names.METRICS_PORT}"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
WHO = f"a pod's port of metrics and state ({names.METRICS_PORT} by default)"


@dataclass(frozen=True)
class RunningPod:
    """`proxy` is the API server's path to its port."""

    name: str
    revision: str
    proxy: str


def check_choice(url: str | None, mmi: str | None, kubectl: Kubectl) -> None:
    """Raise CliError unless a pod's address or a resource is meant, not both.

    What is no name is refused here: kubectl would take it for an option, and an empty one for all.
    """
    if url is not None and mmi is not None:
        raise CliError("--url names one pod and --mmi all pods of a resource; give one.")
    if mmi is not None and not _NAME.fullmatch(mmi):
        raise CliError(
            f"{mmi!r} is no name of a MultimodalInference; `kubectl get mmi -A` lists them."
        )
    if mmi is None and (kubectl.namespace or kubectl.context):
        raise CliError(
            "--namespace and --context say where a resource is; name it with --mmi, or leave them "
            "out."
        )


def running(kubectl: Kubectl, resource: Mapping[str, Any]) -> Iterator[RunningPod]:
    """Those of a resource, as `kubectl get` has it."""
    namespace, owner = resource["metadata"]["namespace"], resource["metadata"]["name"]
    scoped = Kubectl(kubectl.context, namespace)
    for pod in scoped.get("pods", f"--selector={names.LABEL_OWNER}={owner}"):
        if pod.get("status", {}).get("phase") == "Running":
            name = pod["metadata"]["name"]
            yield RunningPod(
                name,
                pod["metadata"].get("labels", {}).get(names.LABEL_REVISION, "-"),
                f"/api/v1/namespaces/{namespace}/pods/{name}:{names.METRICS_PORT}/proxy",
            )


def connection(
    url: str, timeout_seconds: float
) -> AbstractContextManager[http.client.HTTPConnection]:
    """To the port of one pod.

    Raises: CliError for what is no address, and when nothing answers.
    """
    return servers.connection(url, DEFAULT_URL, f"Is it {WHO}?", timeout_seconds)
