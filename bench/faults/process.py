"""A process that is told what to do by lines of JSON, and answers each with a word."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parent.parent / "guard_faults.py"


class Told:
    """Start, tell, kill."""

    def __init__(self, *options: object) -> None:
        self._command = [sys.executable, str(SCRIPT), *map(str, options)]

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._heard("listening")

    def tell(self, do: str, **words: Any) -> None:
        """Give an order and wait until it is done."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **words}).encode() + b"\n")
        self._process.stdin.flush()
        self._heard("done")

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self._process.kill()
        self._process.communicate()

    def restart(self) -> None:
        self.kill()
        self.start()

    def _heard(self, word: str) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != word.encode():
            self._process.kill()
            raise RuntimeError(f"a process failed: {self._process.communicate()[1].decode()}")
