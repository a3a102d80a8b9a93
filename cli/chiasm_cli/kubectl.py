"""Asks a cluster through kubectl: the user's own credentials, contexts and plugins count.

Arguments are lists, never a shell's line. Must not know: what the objects mean.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chiasm_contract import names

from chiasm_cli.errors import CliError

RESOURCE = f"{names.PLURAL}.{names.GROUP}"
FIELD_MANAGER = "chiasm-cli"


@dataclass(frozen=True)
class Kubectl:
    """Where to ask. An empty namespace or context is kubectl's own choice."""

    program: str = "kubectl"
    namespace: str = ""
    context: str = ""

    def run(self, *arguments: str) -> str:
        """What kubectl printed.

        Raises: CliError when it is not installed, or with its own words when it failed.
        """
        where = [f"--namespace={self.namespace}"] if self.namespace else []
        where += [f"--context={self.context}"] if self.context else []
        try:
            ran = subprocess.run(
                [self.program, *arguments, *where], check=False, capture_output=True, text=True
            )
        except OSError as error:
            raise CliError(
                f"{self.program!r} cannot be run ({error.strerror}); install kubectl, or name it "
                "with --kubectl."
            ) from error
        if ran.returncode != 0:
            raise CliError(ran.stderr.strip() or f"kubectl ended with status {ran.returncode}.")
        return ran.stdout

    def resource(self, name: str) -> dict[str, Any]:
        """One MultimodalInference."""
        found: dict[str, Any] = json.loads(self.run("get", RESOURCE, name, "--output=json"))
        return found

    def revisions(self, name: str) -> list[dict[str, Any]]:
        """Its ControllerRevisions."""
        selector = f"--selector={names.LABEL_OWNER}={name}"
        text = self.run("get", "controllerrevisions.apps", selector, "--output=json")
        items: list[dict[str, Any]] = json.loads(text)["items"]
        return items

    def annotate(self, name: str, key: str, value: str) -> None:
        """Set one annotation of a resource."""
        manager = f"--field-manager={FIELD_MANAGER}"
        self.run("annotate", RESOURCE, name, f"{key}={value}", "--overwrite", manager)

    def replace_spec(self, resource: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        """Write another spec, unless somebody changed the resource meanwhile."""
        version = resource["metadata"]["resourceVersion"]
        patch: Sequence[Mapping[str, Any]] = (
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "replace", "path": "/spec", "value": spec},
        )
        self.run(
            "patch", RESOURCE, resource["metadata"]["name"], "--type=json",
            f"--patch={json.dumps(patch)}", f"--field-manager={FIELD_MANAGER}",
        )  # fmt: skip
