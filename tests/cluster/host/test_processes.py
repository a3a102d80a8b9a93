from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chiasm_cluster.host import processes
from chiasm_cluster.host.processes import Process


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000.25"]) as child:
        # Popen returns when exec has closed its pipe, a moment before the new command line is
        # there.
        while b"sleep" not in Path(f"/proc/{child.pid}/cmdline").read_bytes():
            time.sleep(0.01)
        yield child
        child.kill()


def test_a_process_is_found_by_its_command(sleeper: subprocess.Popen[bytes]) -> None:
    found = Process.running(("sleep",), "1000.25")
    assert found is not None
    assert found.pid == sleeper.pid
    assert found in (Process.of(os.getpid()) or found).children()
    assert found.innermost_pid == sleeper.pid
    assert Process.running(("bash",), "1000.25") is None


def test_an_id_that_another_process_has_now_is_left_alone(
    sleeper: subprocess.Popen[bytes],
) -> None:
    earlier = Process(sleeper.pid, started="1")
    assert not earlier.alive
    earlier.send(signal.SIGKILL)
    assert sleeper.poll() is None


def test_kill_waits_until_the_process_is_gone(sleeper: subprocess.Popen[bytes]) -> None:
    process = Process.of(sleeper.pid)
    assert process is not None
    assert processes.memory_bytes(sleeper.pid) > 0
    processes.kill(process)
    assert not process.alive
    assert processes.memory_bytes(sleeper.pid) == 0
    assert Process.of(sleeper.pid) is None


def test_a_zombie_counts_as_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read()  # ends with the process
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert Process.of(child.pid) is None
    child.wait()
    child.stdout.close()
