"""Processes by id, safe against ids that were given to another process since.

A node's processes share one process namespace. Its first process is the supervisor, a child of
`unshare`; when either dies, the kernel kills all others, so no node ever leaves an orphan.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chiasm_cluster.errors import ClusterError

_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process id together with the moment that process started, in clock ticks since boot."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process that has `pid` now; None when there is none or it is a zombie."""
        fields = _stat(pid)
        return None if fields is None or fields[0] == "Z" else cls(pid, fields[19])

    @classmethod
    def running(cls, programs: Sequence[str], last_word: str) -> Process | None:
        """A process that was started as one of `programs` with `last_word` ending its command."""
        for path in _PROC.iterdir():
            words = _command_line(path) if path.name.isdecimal() else []
            if words and words[0] in programs and words[-1] == last_word:
                process = cls.of(int(path.name))
                if process is not None:
                    return process
        return None

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return Process.of(self.pid) == self

    @property
    def innermost_pid(self) -> int | None:
        """Its id in its own process namespace; None when it is gone."""
        try:
            text = (_PROC / str(self.pid) / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        numbers = next(line for line in text.splitlines() if line.startswith("NSpid:"))
        return int(numbers.split()[-1])

    def children(self) -> list[Process]:
        """Its direct children."""
        found = []
        for path in _PROC.iterdir():
            fields = _stat(int(path.name)) if path.name.isdecimal() else None
            if fields is not None and int(fields[1]) == self.pid and fields[0] != "Z":
                found.append(Process(int(path.name), fields[19]))
        return found

    def send(self, number: signal.Signals) -> None:
        """Send a signal if it is still alive."""
        if self.alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait_gone(self, patience_seconds: float) -> bool:
        """Whether it was gone within `patience_seconds`."""
        deadline = time.monotonic() + patience_seconds
        while self.alive:
            with suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


def kill(process: Process, patience_seconds: float = 20) -> None:
    """Kill `process` and wait until it is gone.

    Raises: ClusterError when the kernel does not let it go.
    """
    process.send(signal.SIGKILL)
    if not process.wait_gone(patience_seconds):
        raise ClusterError(
            f"Process {process.pid} was killed and is still there after {patience_seconds:.0f} s; "
            f"see /proc/{process.pid}/stack, then run down again."
        )


def _command_line(path: Path) -> list[str]:
    """The words of the process in folder `path` of /proc; none when it is gone."""
    try:
        return (path / "cmdline").read_text(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name: state, parent, ...; None when gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def memory_bytes(pid: int) -> int:
    """The memory that is resident for process `pid`; 0 when it is gone."""
    try:
        resident = (_PROC / str(pid) / "statm").read_text().split()[1]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(resident) * os.sysconf("SC_PAGE_SIZE")
