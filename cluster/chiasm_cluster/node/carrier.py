"""The process that carries a node: `unshare`, the parent of the node's supervisor.

It is found by its command line, which names the node's plan, and not by a noted id: so also one
that was started just before a crash is found.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from chiasm_cluster.errors import ClusterError
from chiasm_cluster.host import processes
from chiasm_cluster.host.processes import Process
from chiasm_cluster.state import Node

_GRACE_SECONDS = 15.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def plan_file(node: Node) -> Path:
    """Where the supervisor finds its plan."""
    return node.run_dir / "plan.json"


def _command(node: Node) -> list[str]:
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
            "--propagation", "slave", sys.executable, "-m", "chiasm_cluster.node.supervisor",
            str(plan_file(node))]  # fmt: skip


def find(node: Node) -> Process | None:
    """The carrier of `node`, if it runs."""
    return Process.running(programs=("nsenter", "unshare"), last_word=str(plan_file(node)))


def start(node: Node) -> None:
    """Start the supervisor of `node` in namespaces of its own.

    Raises: ClusterError when it ends at once.
    """
    # Not `ip netns exec`, which mounts /sys anew and so hides the control groups.
    command = ["nsenter", f"--net=/run/netns/{node.namespace}", *_command(node)]
    sources = Path(__file__).resolve().parents[2]
    with (node.state_dir / "logs" / "supervisor.log").open("a") as log:
        process = subprocess.Popen(
            command, cwd="/", env={"PYTHONPATH": str(sources), "PATH": _PATH},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    if Process.of(process.pid) is None:
        raise ClusterError(f"The supervisor of {node.name} ended at once; see {log.name}.")


def end(node: Node) -> None:
    """End the supervisor of `node`, and with it all processes and mounts of the node."""
    carrier = find(node)
    if carrier is None:
        return
    for supervisor in carrier.children():
        supervisor.send(signal.SIGTERM)
    if not carrier.wait_gone(_GRACE_SECONDS):
        processes.kill(carrier)
