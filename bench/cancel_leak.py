"""Ten thousand requests cancelled at random moments: what is left behind.

A tiny random model behind the worker's own use case (`Generation`): files are decoded, prompts
built and batches computed as in a pod, with so few blocks that requests are preempted and cached
content is evicted all the time. Clients leave before admission, while pictures are decoded, while
they wait, during prefill and in the middle of answers; some requests end by themselves and count
for nothing.

`leaked_blocks` is what is in use once all clients have gone, `leaked_requests` what any table
still knows, `leaked_media_bytes` processed pictures still accounted for. `rss_mib` is the resident
memory after a twentieth of the cancels (all caches and allocators warm) and at each quarter.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import random
import tempfile
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import torch
from chiasm_contract.config import EngineLimits, MediaLimits, VisionConfig
from chiasm_contract.errors import Overloaded
from chiasm_contract.messages import (
    ChatMessage,
    ContentPart,
    GenerateHead,
    ImagePart,
    MediaFiles,
    TextPart,
)
from chiasm_contract.sampling import Sampling
from chiasm_worker.engine.engine import Engine
from chiasm_worker.engine.service import EngineService
from chiasm_worker.equality import ROOT
from chiasm_worker.generation import Generation, Reading
from chiasm_worker.models.registry import load_model
from chiasm_worker.models.tiny import TINY_MODELS, write_tiny_model
from pictures import noise
from reporting import publish
from transformers.utils import logging as transformers_logging

NUM_CLIENTS = 32
NUM_PICTURES = 40


def rss_mib() -> float:
    """Resident memory of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def random_head(rng: random.Random, name: str) -> tuple[GenerateHead, int]:
    """A conversation and how many pictures it shows."""
    count = rng.choice((0, 0, 1, 1, 2))
    words = "x" * rng.choice((rng.randrange(200), rng.randrange(20)))
    content: tuple[ContentPart, ...] = (
        *(ImagePart(index=i) for i in range(count)),
        TextPart(text=words or "?"),
    )
    sampling = Sampling(temperature=0.0, max_tokens=rng.randint(8, 60))
    head = GenerateHead(
        request_id=name,
        messages=(ChatMessage(role="user", content=content),),
        sampling=sampling,
        priority=rng.choice((0, 0, 0, -1, 1)),
    )
    return head, count


class Clients:
    """What all clients did."""

    def __init__(self, generation: Generation, rng: random.Random, num_cancels: int) -> None:
        self._generation = generation
        self._rng = rng
        self._pictures = [noise(rng, 40, 160) for _ in range(NUM_PICTURES)]
        self._goal = num_cancels
        self.num_cancels = 0
        self.num_finished = 0
        self.num_refused = 0
        self.cancelled_after: dict[str, int] = {"before any token": 0, "after some tokens": 0}
        self.rss_mib: dict[str, float] = {}
        self._marks = {num_cancels // 20: "warm", num_cancels // 4: "q1", num_cancels // 2: "q2"}
        self._marks |= {3 * num_cancels // 4: "q3", num_cancels: "q4"}

    async def keep_asking(self) -> None:
        """One client that asks and leaves until all cancels are done."""
        while self.num_cancels < self._goal:
            number = self.num_cancels + self.num_finished + self.num_refused
            head, count = random_head(self._rng, f"r{number}")
            shown = self._rng.sample(self._pictures, count)
            num_events = self._rng.choice((0, 1, 3, self._rng.randrange(40), 1000))
            seconds = self._rng.random() * self._rng.choice((0.0, 0.003, 0.03, 0.3))
            seen = [0]
            asking = asyncio.create_task(self._ask(head, shown, num_events, seen))
            await asyncio.wait([asking], timeout=seconds if num_events == 1000 else None)
            left = asking.cancel()
            (result,) = await asyncio.gather(asking, return_exceptions=True)
            self._count(left, result, seen[0])
            if isinstance(result, Overloaded):
                await asyncio.sleep(0.02)

    async def _ask(
        self, head: GenerateHead, shown: list[bytes], num_events: int, seen: list[int]
    ) -> bool:
        """Whether the answer came to its end; leaves after `num_events` tokens."""
        async with aclosing(
            self._generation.events(head, MediaFiles(images=tuple(shown)))
        ) as batches:
            async for batch in batches:
                seen[0] += len(batch)
                if batch[-1].type == "finish":
                    return True
                if seen[0] >= num_events:
                    return False
        raise RuntimeError("An answer has no end.")

    def _count(self, left: bool, result: bool | BaseException, num_seen: int) -> None:
        if isinstance(result, Overloaded):
            self.num_refused += 1
        elif result is True:
            self.num_finished += 1
        elif result is False or (left and isinstance(result, asyncio.CancelledError)):
            self.num_cancels += 1
            self.cancelled_after["after some tokens" if num_seen else "before any token"] += 1
            if mark := self._marks.get(self.num_cancels):
                self.rss_mib[mark] = rss_mib()
                print(mark, self.rss_mib[mark], "MiB", flush=True)
        else:
            assert isinstance(result, BaseException)
            raise result


async def measure(folder: Path, rng: random.Random, num_cancels: int) -> dict[str, Any]:
    """All figures of one run."""
    model = load_model(folder, torch.float32, torch.device("cpu"))
    limits = EngineLimits(
        kv_cache_bytes=2**20,
        max_model_len=512,
        max_num_seqs=16,
        max_num_batched_tokens=128,
        max_num_encoder_tokens=64,
        max_waiting_requests=12,
    )
    engine = Engine(model, limits, ROOT)
    service = EngineService(engine)
    generation = Generation(Reading(MediaLimits(), VisionConfig(), model), service)
    service.start()
    clients = Clients(generation, rng, num_cancels)
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(NUM_CLIENTS):
            group.create_task(clients.keep_asking())
    seconds = time.perf_counter() - started
    await service.stop()
    generation.close()
    # The thread has stopped behind the last abort command, or before it: obey what is left.
    while not service._commands.empty():
        if command := service._commands.get():
            command()
    engine.scheduler.check()
    rss = clients.rss_mib
    return {
        "cancels": clients.num_cancels,
        "cancelled": clients.cancelled_after,
        "leaked_blocks": engine.pool.num_used,
        "leaked_requests": engine.scheduler.num_running
        + engine.scheduler.num_waiting
        + len(engine._live)
        + len(service._waiters)
        + service._num_inside,
        "leaked_media_bytes": service._media_room.num_bytes,
        "finished": clients.num_finished,
        "refused_429": clients.num_refused,
        "preemptions": engine.scheduler.counters.num_preemptions,
        "evictions": {kind.value: n for kind, n in sorted(engine.pool.num_evictions.items())},
        "rss_mib": rss,
        "rss_growth_share": round((rss["q4"] - rss["q1"]) / rss["q1"], 4),
        "seconds": round(seconds, 1),
    }


def main() -> None:
    """Cancel, audit, publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--cancels", type=int, default=10_000)
    args = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    transformers_logging.disable_progress_bar()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_tiny_model(TINY_MODELS[0], Path(scratch) / "tiny")
        figures = asyncio.run(measure(folder, random.Random(args.seed), args.cancels))
    publish("cancel_leak", {**figures, "model": TINY_MODELS[0].name, "seed": args.seed})


if __name__ == "__main__":
    main()
