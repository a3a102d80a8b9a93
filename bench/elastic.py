"""How many text-only sequences fit where pictures are declared but none comes.

The same engine, the same byte budget and the same text requests, all there at once; the resource
declares `maxPerPrompt` pictures of the largest size that the processor makes. Three ways to keep
room for them, each really run to the end of every request:

    elastic    as served: nothing is reserved, a block is taken when a token needs it
    static     each admitted sequence reserves the blocks of its declared pictures, K/V and encoder
               outputs, until it ends: allocation per slot for the declared worst case
    at_start   one encoder cache of max_num_batched_tokens (at least one picture) is set aside at
               start, as vLLM does; K/V of pictures is not reserved

Reported per arm: `running`, sequences that hold blocks, averaged over the steps in which requests
still waited; `steps` until all had ended; `preemptions`. `ratio` is elastic `running` over static
`running`, for the middle prompt length; `by_prompt_tokens` has the others: reservations weigh
less the longer the texts are.
"""

from __future__ import annotations

import argparse
import io
import logging
import math
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from chiasm_worker.engine.engine import Engine
from chiasm_worker.equality import Prepared, ask
from chiasm_worker.models.registry import load_model
from chiasm_worker.models.tiny import TINY_MODELS, write_tiny_model
from chiasm_worker.request import Request, SamplingParams
from chiasm_worker.sched.scheduler import Placed, Scheduler
from PIL import Image
from reporting import publish
from transformers.utils import logging as transformers_logging

MAX_PER_PROMPT = 4
MAX_TOKENS = 32
WORDS = (40, 120, 360)  # prompt lengths, in tokens but for the template's own
BUDGET_BYTES = 8 * 2**20


class ReservingScheduler(Scheduler):
    """The static baseline: a sequence runs only with the blocks of all declared pictures."""

    num_reserved_blocks = 0

    def reserve(self, num_blocks: int) -> None:
        """From now on every sequence reserves so many blocks."""
        self.num_reserved_blocks = num_blocks
        self._reserved: dict[str, list[int]] = {}

    def _hold(self, request: Request, *arguments: Any) -> Any:
        """Hold the reservation too, or nothing."""
        if request.request_id in self._reserved:
            return super()._hold(request, *arguments)
        blocks = self._pool.allocate(self.num_reserved_blocks)
        if blocks is None:
            return Placed.NO_ROOM
        placed = super()._hold(request, *arguments)
        if placed is Placed.YES:
            self._reserved[request.request_id] = blocks
        else:
            self._pool.release(blocks)
        return placed

    def _give_back(self, request: Request, **arguments: Any) -> None:
        """Give the reservation back with everything else."""
        self._pool.release(self._reserved.pop(request.request_id, []))
        super()._give_back(request, **arguments)


def largest_picture(prepared: Prepared) -> tuple[int, int]:
    """Tokens and encoder-output blocks of the largest picture that the processor makes."""
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((1024, 1024, 3), dtype=np.uint8)).save(buffer, "PNG")
    item = prepared.prompt(ask("?", [buffer.getvalue()]))[0].spans[0].item
    return item.num_tokens, prepared.engine().media_cache.num_blocks(item)


def run(prepared: Prepared, engine: Engine, num_requests: int, num_words: int) -> dict[str, Any]:
    """Answer text requests that all came at once."""
    for number in range(num_requests):
        text = f"{number} " + "y" * num_words
        prepared.add(engine, f"r{number}", ask(text), SamplingParams(MAX_TOKENS))
    running, steps = [], 0
    while engine.has_requests:
        engine.step()
        steps += 1
        if engine.scheduler.num_waiting:
            running.append(engine.scheduler.num_running)
    if not running:
        raise RuntimeError("Everything fitted at once; send more requests.")
    return {
        "running": round(statistics.mean(running), 2),
        "steps": steps,
        "preemptions": engine.scheduler.counters.num_preemptions,
        "generated_tokens": engine.totals.generation_tokens,
    }


def compare(prepared: Prepared, num_requests: int, num_words: int) -> dict[str, Any]:
    """The three arms for one prompt length."""
    num_tokens, output_blocks = largest_picture(prepared)
    limits = {
        "kv_cache_bytes": BUDGET_BYTES,
        "max_num_seqs": 4096,
        "max_num_batched_tokens": 2048,
        "max_model_len": 1024,
        "prefix_caching": False,  # equal beginnings would hide what each sequence needs
    }
    elastic = prepared.engine(**limits)
    figures = {"elastic": run(prepared, elastic, num_requests, num_words)}

    static = prepared.engine(**limits)
    spec = static.spec
    scheduler = ReservingScheduler(static.scheduler._limits, static.pool, static.media_cache)
    token_blocks = math.ceil(MAX_PER_PROMPT * num_tokens / spec.block_size)
    scheduler.reserve(token_blocks + MAX_PER_PROMPT * output_blocks)
    static.scheduler = scheduler
    figures["static"] = run(prepared, static, num_requests, num_words)
    figures["static"]["reserved_blocks_per_sequence"] = scheduler.num_reserved_blocks

    at_start = prepared.engine(**limits)
    tokens = max(num_tokens, at_start.limits.max_num_batched_tokens)
    reserved = -(-tokens * output_blocks // num_tokens)
    held = at_start.pool.allocate(reserved)
    if held is None:
        raise RuntimeError(f"The budget is smaller than an encoder cache of {reserved} blocks.")
    figures["at_start"] = run(prepared, at_start, num_requests, num_words)
    figures["at_start"]["reserved_blocks"] = reserved
    blocks = math.ceil((num_words + MAX_TOKENS) / spec.block_size)
    return {"blocks_per_sequence": blocks, "num_blocks": static.pool.num_blocks, **figures}


def main() -> None:
    """Run all arms, publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=400)
    args = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    transformers_logging.disable_progress_bar()
    torch.set_num_threads(1)
    lengths: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_tiny_model(TINY_MODELS[0], Path(scratch) / "tiny")
        prepared = Prepared(load_model(folder, torch.float32, torch.device("cpu")))
        for num_words in WORDS:
            lengths[str(num_words)] = compare(prepared, args.requests, num_words)
            print(num_words, lengths[str(num_words)], flush=True)
    middle = lengths[str(WORDS[len(WORDS) // 2])]
    publish(
        "elastic",
        {
            "ratio": round(middle["elastic"]["running"] / middle["static"]["running"], 2),
            "ratio_at_start": round(
                middle["elastic"]["running"] / middle["at_start"]["running"], 2
            ),
            "sequences_elastic": middle["elastic"]["running"],
            "sequences_static": middle["static"]["running"],
            "declared_pictures": MAX_PER_PROMPT,
            "tokens_per_picture": largest_picture(prepared)[0],
            "requests": args.requests,
            "model": TINY_MODELS[0].name,
            "by_prompt_tokens": lengths,
        },
    )


if __name__ == "__main__":
    main()
