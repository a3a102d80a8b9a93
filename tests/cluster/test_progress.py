from __future__ import annotations

import io
import sys

import pytest
from chiasm_cluster.errors import ClusterError
from chiasm_cluster.progress import Progress, run_shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_off_a_terminal_each_part_is_a_plain_line() -> None:
    stream = io.StringIO()
    with Progress("Kubernetes", stream) as progress:
        progress.update("1 of 9 packages")
    assert stream.getvalue() == "Kubernetes: started (0:00)\nKubernetes: done (0:00)\n"


def test_on_a_terminal_one_line_moves() -> None:
    stream = Terminal()
    with Progress("Kubernetes", stream) as progress:
        progress.update("1 of 9 packages")
        progress.update()
    frames = stream.getvalue().split("\r\x1b[K")
    assert "Kubernetes  0:00  1 of 9 packages" in frames[1]
    assert frames[1][0] != frames[2][0], "the spinner stands still"
    assert frames[-1] == "Kubernetes: done (0:00)\n"


def test_lines_are_described_and_a_quiet_command_still_ticks() -> None:
    stream, seen = Terminal(), []

    def describe(line: str) -> str:
        seen.append(line)
        return line.upper()

    program = "import time; print('one', flush=True); time.sleep(1.2); print('two')"
    with Progress("part", stream) as progress:
        run_shown([sys.executable, "-c", program], progress, describe)
    assert seen == ["one\n", "two\n"]
    assert stream.getvalue().count("ONE") >= 2


def test_a_failing_command_is_quoted() -> None:
    with (
        pytest.raises(ClusterError, match=r"(?s)failed; its last words:.*no such module"),
        Progress("part", io.StringIO()) as progress,
    ):
        run_shown([sys.executable, "-c", "raise SystemExit('no such module')"], progress)
