"""Greedy answers of the engine against transformers' `generate`: how many tokens differ.

Fresh pictures, videos, sounds and questions each run, drawn from `--seed` (by default the clock's;
it is reported). Models: the demo model and the random tiny models of every family, all in fp32.
Each conversation is answered by transformers alone, and by the engine in every situation that a
server brings about: alone and cold, alone from the cache, all together, arriving one by one, in
chunks of several sizes, with other block sizes, and with so few blocks that requests are preempted.

A run is one conversation in one situation. On the demo model both sides are also timed, one
conversation at a time, alternating: `tokens_per_second`, `transformers_tokens_per_second`, and
what the engine adds around the model's own arithmetic per decoding step (`step_overhead_ms`).
"""

from __future__ import annotations

import argparse
import functools
import io
import logging
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from chiasm_contract.config import MediaKind
from chiasm_worker.engine.engine import Engine
from chiasm_worker.equality import Conversation, Prepared, Reference, ask, num_mismatches
from chiasm_worker.models.registry import FAMILIES, load_model
from chiasm_worker.models.tiny import TINY_MODELS, write_tiny_model
from chiasm_worker.models.tiny.clips import write_clip, write_sound
from PIL import Image, ImageDraw
from reporting import publish
from transformers.utils import logging as transformers_logging

DEMO_MODEL = Path(__file__).resolve().parent.parent / "demo" / "model"
QUESTIONS = (
    "What is on the left?",
    "How many circles are there?",
    "What colour is the largest thing? Größe, 价格, 5 €",
    "Which number is printed on the label above the square?",
    "Describe the picture.",
    "Is there a red triangle to the right of the blue one, and is it larger?",
)
CHUNKS = (1, 7, 16, 61)
NUM_TIMED = 4
MODALITIES = {family.name: family.modalities for family in FAMILIES}


def picture(rng: random.Random) -> bytes:
    """A few shapes on noise, between 40 and 224 pixels a side, as PNG or JPEG."""
    width, height = rng.randint(40, 224), rng.randint(40, 224)
    noise = np.random.default_rng(rng.getrandbits(32)).integers(0, 256, (height, width, 3))
    image = Image.fromarray(noise.astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(rng.randint(1, 5)):
        x, y, size = rng.randrange(width), rng.randrange(height), rng.randint(8, 60)
        shape = rng.choice((draw.ellipse, draw.rectangle))
        shape((x, y, x + size, y + size), fill=tuple(rng.randrange(256) for _ in range(3)))
    buffer = io.BytesIO()
    image.save(buffer, rng.choice(("PNG", "JPEG")))
    return buffer.getvalue()


def clip(rng: random.Random) -> bytes:
    """A short video of any rate and size."""
    rate = rng.choice((Fraction(8), Fraction(12), Fraction(24000, 1001), Fraction(30)))
    size = (8 * rng.randint(6, 14), 8 * rng.randint(6, 14))
    return write_clip(rng.getrandbits(32), rng.randint(6, 60), rate, size)


def sound(rng: random.Random) -> bytes:
    """A short sound."""
    return write_sound(rng.getrandbits(32), rng.uniform(0.2, 1.9))


def with_pictures(rng: random.Random) -> list[Conversation]:
    """One picture, the same picture again, and two pictures."""
    a, b = picture(rng), picture(rng)
    one, again, two = rng.sample(QUESTIONS, 3)
    return [ask(one, [a]), ask(again, [a]), ask(two, [b, a])]


def with_videos(rng: random.Random) -> list[Conversation]:
    """One video, and the same one behind a picture."""
    video = clip(rng)
    one, two = rng.sample(QUESTIONS, 2)
    return [ask(one, videos=[video]), ask(two, [picture(rng)], [video])]


def with_sounds(rng: random.Random) -> list[Conversation]:
    """One sound, and two."""
    a, b = sound(rng), sound(rng)
    one, two = rng.sample(QUESTIONS, 2)
    return [ask(one, sounds=[a]), ask(two, sounds=[b, a])]


BY_MODALITY = {"image": with_pictures, "video": with_videos, "audio": with_sounds}


def conversations(
    rng: random.Random, modalities: Sequence[str], *, needs_media: bool
) -> list[Conversation]:
    """All that a model takes, and text only unless it takes none."""
    asked = [c for modality in modalities for c in BY_MODALITY[modality](rng)]
    return asked if needs_media else [*asked, ask(rng.choice(QUESTIONS))]


def tight_engine(prepared: Prepared, asked: list[Conversation], max_tokens: int) -> Engine:
    """An engine that holds little more than its longest request."""
    prompts = [prepared.prompt(c)[0] for c in asked]
    longest = max(len(prompt.token_ids) for prompt in prompts) + max_tokens
    engine = prepared.engine(max_model_len=longest)
    # What media take beside the tokens.
    beside = max(engine.pool.num_blocks - engine.scheduler.max_blocks(p) for p in prompts)
    fit = -(-longest // engine.spec.block_size) + beside + 1
    if engine.pool.allocate(engine.pool.num_blocks - fit) is None:
        raise RuntimeError("The pool is smaller than one request.")
    return engine


def situations(
    prepared: Prepared, asked: list[Conversation], max_tokens: int
) -> dict[str, Callable[[], list[list[int]]]]:
    """Name of a situation -> the engine's answers in it."""

    def one_by_one(rounds: int) -> list[list[int]]:
        engine = prepared.engine()
        return [
            [prepared.generate(engine, [c], max_tokens)[0] for _ in range(rounds)][-1]
            for c in asked
        ]

    def together(engine: Engine, steps_between: int = 0) -> list[list[int]]:
        return prepared.generate(engine, asked, max_tokens, steps_between)

    def in_chunks(size: int) -> list[list[int]]:
        return together(prepared.engine(max_num_batched_tokens=size), 2)

    def cold() -> list[list[int]]:
        return [prepared.generate(prepared.engine(), [c], max_tokens)[0] for c in asked]

    return {
        "alone, cold": cold,
        "alone, pictures seen": lambda: one_by_one(1),
        "alone, from the cache": lambda: one_by_one(2),
        "together": lambda: together(prepared.engine()),
        "one after the other": lambda: together(prepared.engine(), 3),
        **{f"chunks of {size}": functools.partial(in_chunks, size) for size in CHUNKS},
        "blocks of 8": lambda: together(prepared.engine(block_size=8)),
        "preempted": lambda: together(tight_engine(prepared, asked, max_tokens)),
    }


def compare(
    folder: Path, rng: random.Random, max_tokens: int, modalities: Sequence[str]
) -> dict[str, Any]:
    """One model: runs, differing tokens, and the situations in which any differed."""
    prepared = Prepared(load_model(folder, torch.float32, torch.device("cpu")))
    reference = Reference(folder)
    asked = conversations(rng, modalities, needs_media=prepared.model.family.needs_media)
    expected = [reference.generate(c, max_tokens) for c in asked]
    found: dict[str, int] = {}
    num_runs = 0
    for name, answers in situations(prepared, asked, max_tokens).items():
        num_runs += len(asked)
        if count := num_mismatches(expected, answers()):
            found[name] = count
    return {"num_runs": num_runs, "token_mismatches": sum(found.values()), "where": found}


def timing(rng: random.Random, max_tokens: int) -> dict[str, float]:
    """Decoding speed of both sides on the demo model, alternating; medians."""
    prepared = Prepared(load_model(DEMO_MODEL, torch.float32, torch.device("cpu")))
    reference = Reference(DEMO_MODEL)
    ours, theirs, overhead = [], [], []
    for _ in range(NUM_TIMED):
        asked = ask(rng.choice(QUESTIONS), [picture(rng)])
        engine = prepared.engine()
        started = time.perf_counter()
        count = len(prepared.generate(engine, [asked], max_tokens)[0])
        ours.append(count / (time.perf_counter() - started))
        started = time.perf_counter()
        count = len(reference.generate(asked, max_tokens))
        theirs.append(count / (time.perf_counter() - started))
        totals = engine.totals
        overhead.append(1000 * (totals.step_seconds - totals.model_seconds) / totals.steps)
    return {
        "tokens_per_second": round(statistics.median(ours), 1),
        "transformers_tokens_per_second": round(statistics.median(theirs), 1),
        "step_overhead_ms": round(statistics.median(overhead), 3),
    }


def main() -> None:
    """Compare, print what differed, publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--max-tokens", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=4, help="fresh conversations per model")
    args = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    torch.set_num_threads(1)
    rng = random.Random(args.seed)
    models: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folders: dict[str, tuple[Path, tuple[MediaKind, ...]]] = {"demo": (DEMO_MODEL, ("image",))}
        for tiny in TINY_MODELS:
            folder = Path(scratch) / tiny.name
            written = write_tiny_model(tiny, folder, seed=rng.getrandbits(31))
            folders[tiny.name] = (written, MODALITIES[tiny.family])
        for name, (folder, modalities) in folders.items():
            rounds = [compare(folder, rng, args.max_tokens, modalities) for _ in range(args.rounds)]
            models[name] = {
                "num_runs": sum(r["num_runs"] for r in rounds),
                "token_mismatches": sum(r["token_mismatches"] for r in rounds),
                "where": [r["where"] for r in rounds if r["where"]],
            }
            print(name, models[name], flush=True)
    publish(
        "engine_equality",
        {
            "num_runs": sum(m["num_runs"] for m in models.values()),
            "token_mismatches": sum(m["token_mismatches"] for m in models.values()),
            "families": sorted({tiny.family for tiny in TINY_MODELS}),
            "num_models": len(models),
            "seed": args.seed,
            "num_cores": os.cpu_count(),
            **timing(rng, max_tokens=64),
            "models": models,
        },
    )


if __name__ == "__main__":
    main()
