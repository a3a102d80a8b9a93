"""The plain data by which `up` tells a node's supervisor what to run.

Standard library only: the supervisor is the first process of its namespace and should stay small.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Component:
    """One program that a node keeps running.

    It starts once everything in `wait_for` answers: "tcp://HOST:PORT", "https://HOST...",
    "unix:///PATH" or "file:///PATH".
    """

    name: str
    command: list[str]
    wait_for: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Bind:
    """A folder of the node's own, seen by its processes at a path that programs insist on."""

    source: str
    target: str


@dataclass(frozen=True)
class NodePlan:
    """All that a supervisor needs to know."""

    components: list[Component]
    binds: list[Bind]
    log_dir: str
    status_file: str
    ctr: list[str]

    def write(self, path: Path) -> None:
        """Write the plan to `path`."""
        path.write_text(json.dumps(asdict(self), indent=2))

    @classmethod
    def read(cls, path: Path) -> NodePlan:
        """The plan that `write` wrote."""
        data = json.loads(path.read_text())
        data["components"] = [Component(**component) for component in data["components"]]
        data["binds"] = [Bind(**bind) for bind in data["binds"]]
        return cls(**data)
