"""Is a picture encoded once: in many files, at the same moment, and while memory is short?

Distinct pictures (by canonical pixels) come back again and again, each time as another file: a
PNG, a lossless WebP or a BMP, for some the decoded pixels of a JPEG beside the JPEG itself. Between
them runs a flood of short texts that fills the pool many times over, so that something has to be
evicted all the time. The model is the demo's. Arms, same pictures in the same order:

    roomy      nothing is ever evicted: `encode_calls` must equal `distinct_images`
    pressure   as served: eviction weighs the measured cost of having a block again
    lru        the same pool and requests, but the least recently used goes: plain LRU
    flooded    six times as many texts between the pictures, as served and with plain LRU

A picture that was evicted and came back has to be encoded again. That is counted apart, in
`evicted_and_needed_again` = encode calls - distinct images, so an arm that shows 0 there encoded
every picture exactly once. `encode_calls` and `distinct_images` at the top are the arm under
pressure.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from chiasm_contract.config import ImageLimits
from chiasm_worker.engine.engine import Engine
from chiasm_worker.equality import Conversation, Prepared, ask
from chiasm_worker.kvcache.eviction import EvictionQueue, Standing
from chiasm_worker.modality.image import decode_image
from chiasm_worker.models.registry import load_model
from chiasm_worker.request import SamplingParams
from pictures import copies, noise
from reporting import publish
from transformers.utils import logging as transformers_logging

DEMO_MODEL = Path(__file__).resolve().parent.parent / "demo" / "model"
MAX_TOKENS = 4
NUM_TEXTS = {"roomy": 1, "pressure": 1, "lru": 1, "flooded": 6, "flooded lru": 6}


class LeastRecentlyUsed(EvictionQueue):
    """What a cache does that asks neither for costs nor for demand."""

    def add(self, entry: int, cost: float, at_least: float = 0.0) -> Standing:
        """Queue an entry behind all others."""
        return super().add(entry, 0.0)


def albums(rng: random.Random, count: int) -> list[list[bytes]]:
    """For each picture its files, all of equal canonical pixels."""
    files = [noise(rng, 112, 224, "JPEG" if i % 3 == 0 else "PNG") for i in range(count)]
    return [[file, *copies(file)] for file in files]


def rounds(
    rng: random.Random, pictures: Sequence[Sequence[bytes]], num_rounds: int, num_texts: int
) -> Iterator[list[Conversation]]:
    """What arrives at the same moment: two pictures, one of them twice, and a flood of texts."""
    number = 0
    for _ in range(num_rounds):
        for which in rng.sample(range(len(pictures)), len(pictures)):
            number += 1
            one, other = rng.choice(pictures[which]), rng.choice(pictures[which])
            third = rng.choice(pictures[rng.randrange(len(pictures))])
            yield [ask(f"{number}?", [one]), ask(f"And {number}?", [third, other])]
            yield [ask(f"text {number}.{i} " + "y" * rng.randrange(90)) for i in range(num_texts)]


def run(prepared: Prepared, engine: Engine, asked: Iterator[list[Conversation]]) -> dict[str, Any]:
    """The engine's counters after all requests."""
    for number, together in enumerate(asked):
        for i, conversation in enumerate(together):
            prepared.add(engine, f"{number}.{i}", conversation, SamplingParams(MAX_TOKENS))
        while engine.has_requests:
            engine.step()
    engine.scheduler.check()
    encoding, costs = engine.runner.encoding, engine.pool.costs
    return {
        "encode_calls": encoding.num_items,
        "encoder_batches": encoding.num_batches,
        "padding_share": round(encoding.num_padding_rows / encoding.num_rows, 4),
        "num_blocks": engine.pool.num_blocks,
        "pool_fills": round(sum(engine.pool.num_evictions.values()) / engine.pool.num_blocks, 1),
        "evicted_blocks": {kind.value: n for kind, n in sorted(engine.pool.num_evictions.items())},
        "prefix_hit_tokens": engine.scheduler.counters.prefix_hit_tokens,
        "encoder_seconds": round(encoding.seconds, 3),
        "model_seconds": round(engine.totals.model_seconds, 2),
        "microseconds_per_token": {
            name: round(1e6 * costs.seconds_per_token(name), 1) for name in ("text", "image")
        },
    }


def main() -> None:
    """Run the three arms, publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--pictures", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=6)
    args = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    transformers_logging.disable_progress_bar()
    torch.set_num_threads(1)
    pictures = albums(random.Random(args.seed), args.pictures)
    files = [file for album in pictures for file in album]
    digests = {decode_image(file, ImageLimits()).digest for file in files}
    arms: dict[str, Any] = {}
    prepared = Prepared(load_model(DEMO_MODEL, torch.float32, torch.device("cpu")))
    outputs = sum(
        prepared.engine().media_cache.num_blocks(span.item)
        for album in pictures
        for span in prepared.prompt(ask("?", album[:1]))[0].spans
    )
    record = prepared.engine().spec.record_bytes
    # The pictures' encoder outputs and twice as much again: far less than the flood.
    short = {"kv_cache_bytes": 3 * outputs * record, "max_model_len": 512}
    for name, num_texts in NUM_TEXTS.items():
        limits = {"kv_cache_bytes": 2**28} if name == "roomy" else short
        engine = prepared.engine(**limits)
        if name.endswith("lru"):
            engine.pool._queue = LeastRecentlyUsed()
        arms[name] = run(
            prepared, engine, rounds(random.Random(args.seed), pictures, args.rounds, num_texts)
        )
        arms[name]["evicted_and_needed_again"] = arms[name]["encode_calls"] - len(digests)
        print(name, arms[name], flush=True)
    publish(
        "media_cache",
        {
            "encode_calls": arms["pressure"]["encode_calls"],
            "distinct_images": len(digests),
            "distinct_files": len({hashlib.sha256(file).digest() for file in files}),
            "evicted_and_needed_again": arms["pressure"]["evicted_and_needed_again"],
            "lru_encode_calls": arms["lru"]["encode_calls"],
            "flooded_encode_calls": arms["flooded"]["encode_calls"],
            "flooded_lru_encode_calls": arms["flooded lru"]["encode_calls"],
            "roomy_encode_calls": arms["roomy"]["encode_calls"],
            "picture_requests": 3 * args.pictures * args.rounds,
            "model": "demo",
            "seed": args.seed,
            "arms": arms,
        },
    )


if __name__ == "__main__":
    main()
