"""Runs the system's own programs; their failure becomes a sentence."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from chiasm_cluster.errors import ClusterError


def run(command: Sequence[str | Path], *, stdin: str | None = None, timeout: float = 120) -> str:
    """Run `command` and return what it printed.

    Raises: ClusterError naming the command and its last words when it fails.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, input=stdin, text=True, capture_output=True, check=False, timeout=timeout
        )
    except FileNotFoundError as error:
        raise ClusterError(f"The program {words[0]!r} is not installed.") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"`{' '.join(words)}` did not end within {timeout:.0f} s.") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
        raise ClusterError(f"`{' '.join(words)}` failed: {said}")
    return done.stdout


def succeeds(command: Sequence[str | Path], *, timeout: float = 120) -> bool:
    """Whether `command` ends with success; a timeout is a failure."""
    try:
        run(command, timeout=timeout)
    except ClusterError:
        return False
    return True
