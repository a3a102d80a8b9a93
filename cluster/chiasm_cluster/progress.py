"""Shows that long work is moving: which part, how far, for how long.

On a terminal one line is rewritten in place; elsewhere a plain line appears now and then. Knows
nothing of what is being done.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from chiasm_cluster.errors import ClusterError

_SPINNER = "|/-\\"
_PLAIN_INTERVAL_SECONDS = 15.0


class Progress:
    """One running part of the work; use as a context manager."""

    def __init__(self, part: str, stream: IO[str] | None = None) -> None:
        self._part = part
        self._stream = stream or sys.stdout
        self._rewrites = self._stream.isatty()
        self._began = time.monotonic()
        self._printed = self._began
        self._turn = 0
        self._detail = ""

    def __enter__(self) -> Self:
        if not self._rewrites:
            self._line("started")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._line("done" if kind is None else "failed")

    def update(self, detail: str = "") -> None:
        """Show `detail` (or the last one again) beside the elapsed time."""
        self._detail = detail or self._detail
        now = time.monotonic()
        if self._rewrites:
            self._turn += 1
            words = f"{_SPINNER[self._turn % 4]} {self._part}  {self._elapsed()}  {self._detail}"
            self._stream.write(f"\r\x1b[K{words[:100]}")
            self._stream.flush()
        elif now - self._printed >= _PLAIN_INTERVAL_SECONDS:
            self._printed = now
            self._line(self._detail)

    def _elapsed(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        return f"{minutes}:{seconds:02d}"

    def _line(self, words: str) -> None:
        start = "\r\x1b[K" if self._rewrites else ""
        self._stream.write(f"{start}{self._part}: {words} ({self._elapsed()})\n")
        self._stream.flush()


def run_shown(
    command: Sequence[str | Path],
    progress: Progress,
    describe: Callable[[str], str] = str.strip,
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> None:
    """Run `command`, showing `describe(line)` of each line it prints.

    Raises: ClusterError with the command's last words when it fails.
    """
    last_lines: deque[str] = deque(maxlen=15)
    process = subprocess.Popen(
        [str(word) for word in command], cwd=cwd, env=environment, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    with process, (log or Path("/dev/null")).open("a") as log_file:
        assert process.stdout is not None  # noqa: S101 -- PIPE was asked for above
        try:
            for line in _lines(process.stdout, progress):
                last_lines.append(line)
                log_file.write(line)
                progress.update(describe(line))
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        words = "".join(last_lines).strip() or "it printed nothing"
        raise ClusterError(f"{Path(command[0]).name} {command[1]} failed; its last words:\n{words}")


def _lines(stream: IO[str], progress: Progress) -> Iterator[str]:
    """The lines of a pipe; the progress is refreshed while none comes."""
    waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def pump() -> None:
        for line in stream:
            waiting.put(line)
        waiting.put(None)

    threading.Thread(target=pump, daemon=True).start()
    while True:
        try:
            line = waiting.get(timeout=0.5)
        except queue.Empty:
            progress.update()
            continue
        if line is None:
            return
        yield line
