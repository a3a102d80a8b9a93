"""A real cluster for the tests that need one, and all that a cluster puts on a machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from chiasm_cluster import state
from chiasm_cluster.host import cgroups
from chiasm_cluster.host.processes import Process
from chiasm_cluster.node import carrier
from chiasm_cluster.settings import Settings

from tests.turns import turn_with

IMAGE = "docker.io/chiasm/operator:0.1.0"


def chiasm_cluster(*arguments: str, stdin: str | None = None) -> str:
    """Run the command line as a person does; what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "chiasm_cluster", *arguments],
        input=stdin, text=True, capture_output=True, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{arguments} said: {done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class RunningCluster:
    """A cluster under test."""

    name: str

    @property
    def record(self) -> state.Cluster:
        return state.required(self.name)

    def up(self, num_nodes: int) -> None:
        chiasm_cluster("up", "--name", self.name, "--nodes", str(num_nodes))

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return chiasm_cluster("kubectl", "--name", self.name, "--", *arguments, stdin=stdin)

    def kill_everything(self) -> None:
        """End every process of every node at once, as a power cut would."""
        for node in self.record.nodes:
            process = carrier.find(node)
            assert process is not None
            process.send(signal.SIGKILL)
            assert process.wait_gone(20)


class Machine:
    """Looks at this machine from outside, as an administrator would."""

    def traces(self, name: str) -> dict[str, set[str]]:
        """Everything on this machine that a cluster could have left, by kind.

        Other clusters may run meanwhile; what bears their names is not counted.
        """
        others = [cluster for cluster in state.all_clusters() if cluster.name != name]
        marks = [rf"chiasm-{cluster.name}(-\d+)?(?![-\w])" for cluster in others]
        marks += [cluster.host_interface for cluster in others]
        marks += [rf"\b10\.{cluster.subnet}\." for cluster in others]
        theirs = re.compile("|".join(marks) or r"(?!)")

        def ours(lines: str) -> set[str]:
            return {line for line in lines.splitlines() if not theirs.search(line)}

        def printed(*command: str) -> set[str]:
            return ours(subprocess.run(command, text=True, capture_output=True, check=True).stdout)

        return {
            "interfaces": printed("ip", "-brief", "link"),
            "routes": printed("ip", "route", "show", "table", "all"),
            "network namespaces": printed("ip", "netns", "list"),
            "mounts": ours(Path("/proc/mounts").read_text()),
            "nft rules": printed("nft", "list", "ruleset"),
            "iptables rules": {line for line in printed("iptables-save") if line[:1] not in "#:"},
            "control groups": {
                str(path) for tree in cgroups.trees() for path in tree.glob(f"chiasm-{name}-*")
            },
            "processes": {
                text
                for path in Path("/proc").glob("[0-9]*")
                if f"/{name}/" in (text := _command_line(path)) and "pytest" not in text
            },
            "run folders": {str(path) for path in state.RUN_DIR.glob(f"{name}*")},
        }

    def process_namespaces(self, cluster: state.Cluster) -> set[str]:
        """The process namespaces in which the cluster's nodes and containers run."""
        supervisors = [
            child
            for node in cluster.nodes
            if (process := carrier.find(node)) is not None
            for child in process.children()
        ]
        return {os.readlink(f"/proc/{supervisor.pid}/ns/pid") for supervisor in supervisors}

    def processes_in(self, namespaces: set[str]) -> list[Process]:
        """Every process that runs in one of `namespaces`."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                inside = os.readlink(path / "ns" / "pid") in namespaces
            except OSError:
                continue
            process = Process.of(int(path.name)) if inside else None
            if process is not None:
                found.append(process)
        return found


def _command_line(path: Path) -> str:
    try:
        return (path / "cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


@pytest.fixture
def machine() -> Machine:
    """The machine under the clusters."""
    return Machine()


@pytest.fixture
def cli() -> Callable[..., str]:
    """Runs the command line."""
    return chiasm_cluster


@pytest.fixture
def make_cluster() -> Iterator[Callable[[str], RunningCluster]]:
    """Names clusters that are taken down after the test."""
    with ExitStack() as made:

        def make(name: str) -> RunningCluster:
            made.enter_context(turn_with(name))
            chiasm_cluster("down", "--name", name)  # what an interrupted run left
            made.callback(chiasm_cluster, "down", "--name", name)
            return RunningCluster(name)

        yield make


@pytest.fixture(scope="package")
def two_nodes() -> Iterator[RunningCluster]:
    """A cluster of two nodes with the operator's image, whose Python serves as a test program."""
    cluster = RunningCluster("selftest")
    with turn_with(cluster.name):
        chiasm_cluster("down", "--name", cluster.name)  # what an interrupted run left
        cluster.up(num_nodes=2)
        chiasm_cluster("load", "--name", cluster.name, "operator")
        yield cluster
        chiasm_cluster("down", "--name", cluster.name)


@pytest.fixture
def cache_dir() -> Path:
    """The user's own cache folder: binaries and layers in it are shared with every cluster."""
    return Settings().cache_dir


@pytest.fixture
def readable_dir() -> Iterator[Path]:
    """A temporary folder that any user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path
