"""What the tour prints: numbered steps with their time, and the output of what runs beneath."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

BOLD, DIM, RED, GREEN, PLAIN = "\033[1m", "\033[2m", "\033[31m", "\033[32m", "\033[0m"


class TourError(Exception):
    """The tour cannot go on; the message is a sentence that says what to do."""


class Console:
    """Numbered steps on a terminal or in a plain log."""

    def __init__(self, num_steps: int) -> None:
        self.num_steps = num_steps
        self.step_index = 0
        self.started = time.monotonic()
        self._colours = sys.stdout.isatty()

    def paint(self, text: str, colour: str) -> str:
        """`text` in `colour` where a terminal shows it."""
        return f"{colour}{text}{PLAIN}" if self._colours else text

    def say(self, text: str = "") -> None:
        """One line."""
        print(text, flush=True)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """One numbered step; its time is printed when it ends, failed or not."""
        self.step_index += 1
        label = f"[{self.step_index}/{self.num_steps}] {title}"
        self.say(self.paint(label, BOLD))
        started = time.monotonic()
        try:
            yield
        except BaseException:
            self.say(self.paint(f"      failed after {time.monotonic() - started:.1f} s", RED))
            raise
        self.say(self.paint(f"      done in {time.monotonic() - started:.1f} s", DIM))

    def total_seconds(self) -> float:
        """Seconds since the tour began."""
        return time.monotonic() - self.started
