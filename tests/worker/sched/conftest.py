"""Schedulers and requests as plain data, and steps in which every sampled token is the same."""

from __future__ import annotations

import numpy as np
from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.block_table import BlockTable
from chiasm_worker.kvcache.media_cache import MediaCache
from chiasm_worker.kvcache.prefix_cache import CacheScope, ContentChain
from chiasm_worker.kvcache.spec import KVCacheSpec
from chiasm_worker.media_identity import MediaIdentity, MediaSpan
from chiasm_worker.request import FinishReason, Prompt, Request, SamplingParams
from chiasm_worker.sched.batch import ScheduledBatch
from chiasm_worker.sched.scheduler import Scheduler, SchedulerLimits

ROOT = b"r" * 32
SCOPE = CacheScope("a" * 64, ROOT)
BLOCK = 4
SPEC = KVCacheSpec(num_layers=1, num_kv_heads=1, head_dim=4, block_size=BLOCK, dtype_bytes=4)
BYTES_PER_TOKEN = 32  # a payload has 128 bytes: 4 picture tokens a block


def scheduler(
    num_blocks: int,
    budget: int = 64,
    seqs: int = 8,
    caching: bool = True,
    encoder_budget: int = 2**62,
) -> Scheduler:
    pool = BlockPool(num_blocks)
    limits = SchedulerLimits(seqs, budget, caching, encoder_budget)
    return Scheduler(limits, pool, MediaCache(pool, SPEC, BYTES_PER_TOKEN))


def request(
    name: str,
    num_prompt: int,
    max_tokens: int = 4,
    pictures: tuple[tuple[int, int, int], ...] = (),
    first: int = 0,
    priority: int = 0,
) -> Request:
    """A request for tokens first, first+1, ...; pictures are (start, length, which)."""
    spans = tuple(
        MediaSpan(MediaIdentity("image", bytes([which]) * 32, (length,), length), start, b"p" * 32)
        for start, length, which in pictures
    )
    prompt = Prompt(
        tuple(range(first, first + num_prompt)), spans, np.arange(num_prompt, dtype=np.int64)[None]
    )
    return Request(
        name,
        prompt,
        SamplingParams(max_tokens=max_tokens),
        SCOPE,
        ContentChain(ROOT, BLOCK, spans),
        BlockTable(BLOCK),
        priority,
    )


def compute(sched: Scheduler, token: int = 7) -> ScheduledBatch:
    """One step in which every sampled token is `token`, ending requests at their length."""
    batch = sched.schedule()
    record(sched, batch, token)
    return batch


def record(sched: Scheduler, batch: ScheduledBatch, token: int = 7) -> None:
    """What `compute` does once the batch is chosen."""
    tokens = {c.request.request_id: token for c in batch.chunks if c.samples}
    sched.update(batch, tokens)
    for chunk in batch.chunks:
        done = chunk.request
        if done.num_output_tokens >= done.params.max_tokens:
            sched.finish(done, FinishReason.LENGTH)


def shape(batch: ScheduledBatch) -> list[tuple[str, int, int, bool]]:
    return [(c.request.request_id, c.start, c.num_tokens, c.samples) for c in batch.chunks]
