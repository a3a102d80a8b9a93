"""The processes of `chiasm serve`: started together, ended together, none left behind.

They get their own process groups, so that Ctrl-C reaches only the parent, which then ends them in
order. Should the parent be killed, the kernel ends them (Linux).
"""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1
_STOP_SECONDS = 15.0


class Child:
    """One running subcommand of ours."""

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chiasm_cli", *arguments],
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - no threads here
        )

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.poll()

    def stop(self, number: signal.Signals) -> None:
        """Send `number`, wait, and kill what does not end in time."""
        if self.status is None:
            self._process.send_signal(number)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
