"""What fewer vision tokens save and cost on the demo model, at each compression ratio.

`accuracy`: greedy answers of the engine to held-out pictures (`--num` for each kind of question),
right if they are the expected text, letter by letter; by kind beside it, and what averaging tokens
instead of keeping the most salient one reaches (`mean_method_accuracy`). `kv_bytes`: what the
keys and values of a picture take, on the average of these pictures.

`ms_per_token`: prompts with several pictures that were never seen before, one at a time, the ratios
in turns: all time in the engine until the last token, encoder included, by the tokens generated.
`ms_per_token_seen` is the same when the encoder's output is still there, `held_bytes` what such a
request holds of the cache while it answers. Each figure's share of ratio 1's stands in `to_1x`.
"""

from __future__ import annotations

import argparse
import io
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from chiasm_contract.config import (
    COMPRESSION_RATIOS,
    CompressionMethod,
    CompressionRatio,
    VisionConfig,
)
from chiasm_demo.evaluation import Asked, held_out
from chiasm_demo.questions import KINDS
from chiasm_worker.equality import Prepared, ask
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.models.registry import load_model
from chiasm_worker.request import SamplingParams
from demo_accuracy import style_with_fonts
from PIL import Image
from reporting import publish

MODEL = Path(__file__).resolve().parent.parent / "demo" / "model"
ANSWER_TOKENS = 12
TOGETHER = 16
TIMED_TOKENS = 16
SHARES = ("kv_bytes", "held_bytes", "ms_per_token", "ms_per_token_seen", "accuracy")


def encoded(picture: Image.Image) -> bytes:
    """A picture as a PNG file."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def prepared(
    model: LoadedModel, ratio: CompressionRatio, method: CompressionMethod = "salient"
) -> Prepared:
    """The model with every picture compressed by `ratio`."""
    return Prepared(model, VisionConfig(compression=ratio, compression_method=method))


def share_right(asking: Prepared, asked: Sequence[Asked]) -> float:
    """How many answers are the expected ones."""
    spell = asking.model.processor.tokenizer
    right = 0
    for start in range(0, len(asked), TOGETHER):
        batch = asked[start : start + TOGETHER]
        questions = [ask(one.question.text, [encoded(one.picture)]) for one in batch]
        engine = asking.engine(max_num_batched_tokens=2048, kv_cache_bytes=2**25)
        for one, said in zip(batch, asking.generate(engine, questions, ANSWER_TOKENS), strict=True):
            right += spell.decode(said, skip_special_tokens=True) == one.question.answer
    return right / len(asked)


def quality(asking: Prepared, asked: dict[str, list[Asked]]) -> dict[str, Any]:
    """Accuracy over all kinds and by kind."""
    by_kind = {kind: round(share_right(asking, some), 4) for kind, some in asked.items()}
    return {
        "accuracy": round(statistics.mean(by_kind.values()), 4),
        "accuracy_by_kind": by_kind,
    }


def size(asking: Prepared, asked: dict[str, list[Asked]]) -> dict[str, float]:
    """Tokens of a picture and the bytes of their keys and values, on average."""
    prompts = [
        asking.prompt(ask("?", [encoded(one.picture)]))[0]
        for some in asked.values()
        for one in some
    ]
    tokens = statistics.mean(prompt.num_media_tokens["image"] for prompt in prompts)
    spec = asking.engine().spec
    return {
        "image_tokens": round(tokens, 2),
        "kv_bytes": round(tokens * spec.kv_bytes / spec.block_size),
    }


def timed(asking: Prepared, pictures: list[bytes], rounds: int) -> list[dict[str, float]]:
    """Milliseconds by generated token of the same request, new and again; bytes that it holds."""
    engine = asking.engine(prefix_caching=False, max_num_batched_tokens=2048)
    params = SamplingParams(max_tokens=TIMED_TOKENS)
    readings = []
    for index in range(rounds):
        request = asking.add(engine, f"r{index}", ask("What is left?", pictures), params)
        started = time.perf_counter()
        engine.step()
        held = engine.pool.num_used * engine.spec.record_bytes
        while engine.has_requests:
            engine.step()
        seconds = time.perf_counter() - started
        tokens = request.num_output_tokens
        readings.append({"ms_per_token": 1000 * seconds / tokens, "held_bytes": held})
    return readings


def latency(
    model: LoadedModel, pictures: list[bytes], num_requests: int, each: int
) -> dict[int, dict[str, float]]:
    """By ratio: medians over requests with `each` pictures, every ratio asked in turn."""
    endless = replace(model, eos_token_ids=frozenset())
    asking = {ratio: prepared(endless, ratio) for ratio in COMPRESSION_RATIOS}
    new: dict[int, list[float]] = {ratio: [] for ratio in COMPRESSION_RATIOS}
    seen: dict[int, list[float]] = {ratio: [] for ratio in COMPRESSION_RATIOS}
    held: dict[int, list[float]] = {ratio: [] for ratio in COMPRESSION_RATIOS}
    for index in range(num_requests + 1):
        chosen = [pictures[(index * each + i) % len(pictures)] for i in range(each)]
        for ratio in COMPRESSION_RATIOS:
            first, again = timed(asking[ratio], chosen, 2)
            if index > 0:  # The first request warms up.
                new[ratio].append(first["ms_per_token"])
                seen[ratio].append(again["ms_per_token"])
                held[ratio].append(again["held_bytes"])
    return {
        ratio: {
            "ms_per_token": round(statistics.median(new[ratio]), 3),
            "ms_per_token_seen": round(statistics.median(seen[ratio]), 3),
            "held_bytes": round(statistics.mean(held[ratio])),
        }
        for ratio in COMPRESSION_RATIOS
    }


def main() -> None:
    """Measure every ratio, print it, publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num", type=int, default=40, help="pictures per kind of question")
    parser.add_argument("--requests", type=int, default=12, help="timed requests per ratio")
    parser.add_argument("--pictures", type=int, default=8, help="pictures in a timed request")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started = time.monotonic()
    model = load_model(MODEL, torch.float32, torch.device("cpu"))
    style = style_with_fonts()
    asked = {kind: held_out(kind, arguments.num, style) for kind in KINDS}
    every = [encoded(one.picture) for some in asked.values() for one in some]
    random.Random(0).shuffle(every)
    times = latency(model, every, arguments.requests, arguments.pictures)
    ratios: dict[str, dict[str, Any]] = {}
    for ratio in COMPRESSION_RATIOS:
        asking = prepared(model, ratio)
        found = {**size(asking, asked), **times[ratio], **quality(asking, asked)}
        if ratio > 1:
            other = prepared(model, ratio, "mean")
            found["mean_method_accuracy"] = quality(other, asked)["accuracy"]
        ratios[str(ratio)] = found
        found["to_1x"] = {name: round(found[name] / ratios["1"][name], 3) for name in SHARES}
        print(ratio, found, flush=True)
    publish(
        "compression",
        {
            "ratios": ratios,
            "method": VisionConfig().compression_method,
            "num_pictures": arguments.num * len(KINDS),
            "pictures_per_timed_request": arguments.pictures,
            "seconds": round(time.monotonic() - started, 1),
        },
    )


if __name__ == "__main__":
    main()
