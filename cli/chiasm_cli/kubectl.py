"""Calls kubectl, with the context and rights of whoever sits at the terminal.

Must not know: what a resource means.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from chiasm_contract import names

from chiasm_cli.errors import CliError

RESOURCES = f"{names.PLURAL}.{names.GROUP}"
NamespaceOption = Annotated[
    str, typer.Option("--namespace", "-n", help="Kubernetes namespace; default: kubectl's.")
]
ContextOption = Annotated[str, typer.Option(help="Context of kubectl; default: its current one.")]

_TIMEOUT_SECONDS = 60


class KubectlFailed(CliError):
    """kubectl ended with an error; the words are its own."""


@dataclass(frozen=True)
class Kubectl:
    """Which cluster and namespace; empty: what kubectl has chosen."""

    context: str = ""
    namespace: str = ""

    def get(self, *what: str) -> list[Mapping[str, Any]]:
        """The objects that `kubectl get` finds."""
        found = json.loads(self._run(*self._scope(), "get", *what, "--output=json"))
        items: list[Mapping[str, Any]] = found.get("items", [found])
        return items

    def raw(self, path: str) -> str:
        """What a path of the API server answers."""
        return self._run(*self._context(), "get", "--raw", path)

    def post(self, path: str, timeout_seconds: float) -> str:
        """What a path of the API server answers to a POST of nothing."""
        words = ("create", "--raw", path, "--filename=-")
        return self._run(*self._context(), *words, timeout_seconds=timeout_seconds)

    def merge(self, kind: str, name: str, patch: Mapping[str, Any]) -> None:
        """Change an object."""
        words = ("patch", kind, name, "--type=merge", f"--patch={json.dumps(patch)}")
        self._run(*self._scope(), *words)

    def annotate(self, kind: str, name: str, key: str, value: str) -> None:
        """Set one annotation of an object."""
        self._run(*self._scope(), "annotate", kind, name, f"{key}={value}", "--overwrite")

    def change(self, kind: str, name: str, patch: Sequence[Mapping[str, Any]]) -> None:
        """Change an object by a JSON patch, in which a test may name what must not be changed."""
        words = ("patch", kind, name, "--type=json", f"--patch={json.dumps(patch)}")
        self._run(*self._scope(), *words)

    def _context(self) -> tuple[str, ...]:
        return (f"--context={self.context}",) if self.context else ()

    def _scope(self) -> tuple[str, ...]:
        chosen = (f"--namespace={self.namespace}",) if self.namespace else ()
        return (*self._context(), *chosen)

    def _run(self, *arguments: str, timeout_seconds: float = _TIMEOUT_SECONDS) -> str:
        """Raises: CliError without a kubectl, KubectlFailed with its words."""
        try:
            ended = subprocess.run(
                ["kubectl", *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout_seconds,
            )
        except (FileNotFoundError, PermissionError) as error:
            raise CliError(
                "no kubectl on the PATH can be run, and this command asks the cluster through it; "
                "install it, or put it there."
            ) from error
        except subprocess.TimeoutExpired as error:
            verb = next(word for word in arguments if not word.startswith("-"))
            raise KubectlFailed(
                f"kubectl {verb} has not ended within {timeout_seconds:g} s; does the "
                "cluster answer `kubectl version`?"
            ) from error
        if ended.returncode:
            words = ended.stderr.strip().splitlines() or [f"it ended with {ended.returncode}"]
            raise KubectlFailed(f"kubectl: {words[-1]}")
        return ended.stdout
