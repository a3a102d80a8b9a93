"""How the benchmark talks to a contestant: one JSON object a line, on standard input and output.

Only the standard library, since a contestant may live in a Python environment of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """One user turn: a picture file, then words."""

    picture: str
    words: str


# Questions, answered together with so many tokens each -> tokens generated in all.
Answer = Callable[[Sequence[Question], int], int]


def serve(build: Callable[[str, int], Answer]) -> None:
    """Run a contestant: `build(model folder, threads)` once, then one timed answer a line."""
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is not an answer
    answer = build(sys.argv[1], int(sys.argv[2]))
    print(json.dumps({"ready": True}), file=lines, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        questions = [Question(**question) for question in asked["questions"]]
        started = time.perf_counter()
        num_tokens = answer(questions, asked["max_tokens"])
        seconds = time.perf_counter() - started
        print(json.dumps({"seconds": seconds, "num_tokens": num_tokens}), file=lines, flush=True)
