"""The first process of a node: starts its components, restarts those that end, reaps orphans.

Run as `python -m chiasm_cluster.node.supervisor PLAN` inside fresh process and mount namespaces.
Nothing outlives it: when it ends, the kernel kills every process of the namespace and drops every
mount, containers included. It never talks to Kubernetes.

Standard library only, see component.py.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from chiasm_cluster.node.component import Component, NodePlan

_TICK_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
_STEADY_SECONDS = 30.0
_STOP_PATIENCE_SECONDS = 3.0
RUNTIME = "containerd"


@dataclass
class Running:
    """The state of one component."""

    component: Component
    pid: int | None = None
    num_starts: int = 0
    num_failures: int = 0
    started_at: float = 0.0
    not_before: float = 0.0

    def ended(self, now: float) -> None:
        """Note that its process has ended; the pause before the next start doubles."""
        if now - self.started_at > _STEADY_SECONDS:
            self.num_failures = 0
        self.pid = None
        self.not_before = now + min(0.25 * 2**self.num_failures, _LONGEST_PAUSE_SECONDS)
        self.num_failures += 1


def answers(address: str) -> bool:
    """Whether what a component waits for is there."""
    parts = urlsplit(address)
    match parts.scheme:
        case "file":
            return os.path.exists(parts.path)
        case "https":
            return _succeeds(address)
        case "unix":
            return _accepts(socket.AF_UNIX, parts.path)
    return _accepts(socket.AF_INET, (parts.hostname, parts.port))


def _accepts(family: socket.AddressFamily, target: object) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(target) == 0  # type: ignore[arg-type]


def _succeeds(url: str) -> bool:
    """Whether a GET succeeds; nothing is sent or believed, so nobody's identity is checked."""
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=1, context=trusting):  # noqa: S310 -- https
            return True
    except OSError:
        return False


class Supervisor:
    """Keeps the components of one node running until told to stop."""

    def __init__(self, plan: NodePlan) -> None:
        self._plan = plan
        self._all = [Running(component) for component in plan.components]

    def run(self) -> None:
        """Run until SIGTERM, then stop everything in order."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
        self._write_status()
        while True:
            for running in self._all:
                if running.pid is None and self._may_start(running):
                    self._start(running)
            received = signal.sigtimedwait({signal.SIGTERM, signal.SIGCHLD}, _TICK_SECONDS)
            if received is not None and received.si_signo == signal.SIGTERM:
                break
            self._reap()
        self._stop()

    def _may_start(self, running: Running) -> bool:
        return time.monotonic() >= running.not_before and all(
            answers(address) for address in running.component.wait_for
        )

    def _start(self, running: Running) -> None:
        component = running.component
        log = os.path.join(self._plan.log_dir, f"{component.name}.log")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        running.pid = os.posix_spawn(
            component.command[0],
            component.command,
            {**os.environ, **component.environment},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[],
        )
        running.num_starts += 1
        running.started_at = time.monotonic()
        self._write_status()

    def _reap(self) -> None:
        """Collect every ended process, those that lost their parents included."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for running in self._all:
                if running.pid == pid:
                    running.ended(time.monotonic())
                    self._write_status()

    def _write_status(self) -> None:
        """Note pids as this namespace numbers them, and how often each was started."""
        status = {
            running.component.name: {"pid": running.pid, "num_starts": running.num_starts}
            for running in self._all
        }
        unfinished = Path(self._plan.status_file + ".new")
        unfinished.write_text(json.dumps(status))
        unfinished.replace(self._plan.status_file)

    def _stop(self) -> None:
        """Kill all but the container runtime, let it forget its containers, end it in peace.

        Only the runtime's images are kept beyond this point, so only it needs a peaceful end.
        """
        others = [running for running in self._all if running.component.name != RUNTIME]
        self._end(others, signal.SIGKILL)
        if any(running.pid for running in self._all):
            self._forget_containers()
        self._end(self._all, signal.SIGTERM)

    def _forget_containers(self) -> None:
        """Remove every container, so that the next start finds images only."""
        ctr = self._plan.ctr
        listed = subprocess.run(
            [*ctr, "containers", "list", "-q"],
            check=False,
            text=True,
            capture_output=True,
            timeout=5,
        )
        containers = listed.stdout.split()
        if containers:
            for what in (["tasks", "delete", "--force"], ["containers", "delete"]):
                subprocess.run([*ctr, *what, *containers], check=False, timeout=20)

    def _end(self, ending: list[Running], how: signal.Signals) -> None:
        for running in ending:
            if running.pid is not None:
                os.kill(running.pid, how)
        deadline = time.monotonic() + _STOP_PATIENCE_SECONDS
        while any(running.pid for running in ending) and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.02)


def enter(plan: NodePlan) -> None:
    """Make this mount namespace the node's own.

    Mounts made on the host still come in (the mounts are slaves), none made here goes out, and
    containers may pass mounts on to each other (the mounts are shared among them).
    """
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    for bind in plan.binds:
        subprocess.run(["mount", "--bind", bind.source, bind.target], check=True)


def main() -> None:
    """Supervise the plan named on the command line."""
    plan = NodePlan.read(Path(sys.argv[1]))
    enter(plan)
    Supervisor(plan).run()


if __name__ == "__main__":
    main()
