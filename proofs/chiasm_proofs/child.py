"""Starts a worker process, asks it, starts it anew when it died.

A kernel that reads where nothing is mapped ends its process: whoever asked is told so in words, and
the next question finds a new one.

Must not know: kernels; imports neither torch nor Triton.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

Kind = Literal["interpreted", "compiled"]


class ProofError(RuntimeError):
    """The worker could not answer; says what it said."""


class Child:
    """One worker process.

    Args:
        cache: where Triton keeps what it compiled.
    """

    def __init__(self, kind: Kind, cache: Path) -> None:
        self._kind = kind
        self._cache = cache
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def ask(self, question: str, timeout_seconds: float = 300, **arguments: Any) -> dict[str, Any]:
        """The worker's answer.

        Raises: ProofError when it fails, dies or takes too long.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"ask": question, **arguments}) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], timeout_seconds)
        line = process.stdout.readline() if ready else ""
        if not line:
            ended = f"ended with {process.wait(5)}" if ready else f"took over {timeout_seconds} s"
            self.close()
            raise ProofError(f"The {self._kind} worker, asked {question} {arguments}, {ended}.")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ProofError(f"{question} {arguments}: {answer['error']}")
        return answer

    def _start(self) -> subprocess.Popen[str]:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("TRITON_") and name != "PYTHONWARNINGS"
        }
        environment["TRITON_CACHE_DIR"] = str(self._cache)
        # Whether a*b+c may be fused; said, because Triton's default is about to change.
        environment["TRITON_DEFAULT_FP_FUSION"] = "1"
        if self._kind == "interpreted":
            environment["TRITON_INTERPRET"] = "1"
        # -W ignore: numpy remarks on infinities that kernels use on purpose.
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "chiasm_proofs.worker", self._kind],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return self._process
