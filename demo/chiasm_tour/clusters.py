"""The two clusters a tour may run on: one of our own, or the user's current context.

Both offer the same few verbs. `current` never starts, stops or loads anything: it names the
context, asks first, and expects the images in a registry that the cluster can pull from.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from chiasm_tour.console import TourError

IMAGES = ("operator", "sidecar", "worker")


class Cluster(Protocol):
    """What the tour needs of a cluster."""

    def up(self) -> None:
        """Make it usable."""

    def load(self) -> None:
        """Make our three images available to its nodes."""

    def kubectl(self, *arguments: str, quiet: bool = False) -> str:
        """Run kubectl and return what it printed."""

    def helm(self, *arguments: str) -> str:
        """Run helm and return what it printed."""

    def chart_values(self) -> list[str]:
        """helm arguments that say where the images are."""

    @property
    def kubectl_command(self) -> str:
        """What a person types for kubectl."""


def run(command: Sequence[str], *, capture: bool = True, quiet: bool = False) -> str:
    """Run `command`; its standard output when captured.

    Raises: TourError with the command's last words when it fails.
    """
    done = subprocess.run(
        command, check=False, text=True, stdout=subprocess.PIPE if capture else None,
        stderr=subprocess.PIPE if capture else None,
    )  # fmt: skip
    if done.returncode != 0:
        words = ((done.stderr or "") if capture else "its words are above").strip()
        if not quiet:
            raise TourError(f"{' '.join(command[:6])} ... failed: {words or 'no message'}")
        return ""
    return done.stdout or ""


@dataclass(frozen=True)
class LocalCluster:
    """The cluster that chiasm_cluster builds on this machine."""

    name: str

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "chiasm_cluster", *arguments]

    def up(self) -> None:
        """Build what is missing and start it."""
        run(self._command("up", "--name", self.name), capture=False)

    def load(self) -> None:
        """Build and import the three images."""
        run(self._command("load", "--name", self.name, *IMAGES), capture=False)

    def down(self) -> None:
        """Stop it; nothing stays but the cache."""
        run(self._command("down", "--name", self.name), capture=False)

    def kubectl(self, *arguments: str, quiet: bool = False) -> str:
        """Run kubectl against it."""
        return run(self._command("kubectl", "--name", self.name, "--", *arguments), quiet=quiet)

    def helm(self, *arguments: str) -> str:
        """Run helm against it."""
        return run(self._command("helm", "--name", self.name, "--", *arguments))

    def kubeconfig(self) -> Path:
        """What a kubectl of the user's needs to reach it."""
        return Path(run(self._command("kubeconfig", "--name", self.name)).strip())

    def programs(self) -> Path:
        """The folder of its own kubectl and helm."""
        return Path(run(self._command("programs", "--name", self.name)).strip())

    def chart_values(self) -> list[str]:
        """Name the images by digest, so that new ones roll out and equal ones change nothing."""
        digests = json.loads(run(self._command("images", "--name", self.name)))
        return [
            argument
            for part in IMAGES
            for argument in ("--set", f"images.{part}.digest={digests[part]}")
        ]

    @property
    def kubectl_command(self) -> str:
        """What a person types for kubectl."""
        return f".venv/bin/python -m chiasm_cluster kubectl --name {self.name} --"

    @contextmanager
    def endpoint(self, namespace: str, service: str, port: int) -> Iterator[str]:
        """The Service's own address: this machine has a route to it."""
        found: dict[str, Any] = json.loads(
            self.kubectl("get", "service", service, "-n", namespace, "-o", "json")
        )
        yield f"http://{found['spec']['clusterIP']}:{port}"


@dataclass(frozen=True)
class CurrentCluster:
    """Whatever the user's kubeconfig points at."""

    registry: str

    def up(self) -> None:
        """Check that the images are somewhere, and ask before anything is changed."""
        if not self.registry:
            raise TourError(
                "CLUSTER=current needs REGISTRY=registry.example, to which you pushed "
                f"{', '.join(f'chiasm/{part}' for part in IMAGES)}, built from */Dockerfile."
            )
        self.confirm("This installs Chiasm into")

    def confirm(self, what: str) -> None:
        """Name the context and ask.

        Raises: TourError unless a person at a terminal says yes.
        """
        context = run(["kubectl", "config", "current-context"]).strip()
        print(f"      {what} your cluster, context {context!r}.")
        if not sys.stdin.isatty():
            raise TourError("CLUSTER=current asks before it changes a cluster; use a terminal.")
        if input("      Go on? [y/N] ").strip().lower() not in {"y", "yes"}:
            raise TourError("Nothing was changed.")

    def load(self) -> None:
        """Nothing to do: the cluster pulls from the registry."""

    def down(self) -> None:
        """Nothing to stop: the cluster is the user's."""

    def kubectl(self, *arguments: str, quiet: bool = False) -> str:
        """Run the user's kubectl."""
        return run(["kubectl", *arguments], quiet=quiet)

    def helm(self, *arguments: str) -> str:
        """Run the user's helm."""
        return run(["helm", *arguments])

    def chart_values(self) -> list[str]:
        """Point the chart at the user's registry."""
        return ["--set", f"images.registry={self.registry}"]

    @property
    def kubectl_command(self) -> str:
        """What a person types for kubectl."""
        return "kubectl"

    @contextmanager
    def endpoint(self, namespace: str, service: str, port: int) -> Iterator[str]:
        """A port of this machine, forwarded to the Service."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            local_port = probe.getsockname()[1]
        command = ["kubectl", "port-forward", "-n", namespace, f"service/{service}"]
        forward = subprocess.Popen(
            [*command, f"{local_port}:{port}"], stdout=subprocess.PIPE, text=True
        )
        try:
            if forward.stdout is None or not forward.stdout.readline():
                raise TourError(f"kubectl port-forward to {service} failed; its words are above.")
            yield f"http://127.0.0.1:{local_port}"
        finally:
            forward.terminate()
            forward.wait()


def chosen(kind: str, registry: str) -> LocalCluster | CurrentCluster:
    """The cluster that CLUSTER= names.

    Raises: TourError for any other word.
    """
    match kind:
        case "local":
            return LocalCluster("chiasm")
        case "current":
            return CurrentCluster(registry)
    raise TourError(f"CLUSTER={kind} is unknown; use CLUSTER=local or CLUSTER=current.")
