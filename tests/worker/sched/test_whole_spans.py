"""What is scheduled when tokens see one another, or read pictures by cross-attention."""

from __future__ import annotations

import random
import sys
from dataclasses import replace

import numpy as np
import pytest
from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.block_table import BlockTable
from chiasm_worker.kvcache.media_cache import MediaCache
from chiasm_worker.kvcache.prefix_cache import CacheScope, ContentChain, cross_root
from chiasm_worker.kvcache.spec import KVCacheSpec
from chiasm_worker.media_identity import Compression, CrossSpan, MediaIdentity, MediaSpan
from chiasm_worker.request import FinishReason, Prompt, Request, SamplingParams
from chiasm_worker.sched.batch import ScheduledBatch
from chiasm_worker.sched.scheduler import Scheduler, SchedulerLimits
from chiasm_worker.sched.spans import needed_together

ROOT = b"r" * 32
SCOPE = CacheScope("a" * 64, ROOT)
BLOCK = 4
SPEC = KVCacheSpec(num_layers=1, num_kv_heads=1, head_dim=4, block_size=BLOCK, dtype_bytes=4)
BYTES_PER_TOKEN = 32  # a payload has 128 bytes: 4 vectors a block
Span = tuple[int, int]


def scheduler(num_blocks: int, budget: int = 64, seqs: int = 8, caching: bool = True) -> Scheduler:
    pool = BlockPool(num_blocks)
    limits = SchedulerLimits(seqs, budget, caching)
    return Scheduler(limits, pool, MediaCache(pool, SPEC, BYTES_PER_TOKEN))


def picture(which: int, length: int) -> MediaIdentity:
    return MediaIdentity("image", bytes([which]) * 32, (length,), length)


def request(
    name: str,
    num_prompt: int,
    spans: tuple[Span, ...] = (),
    pictures: tuple[tuple[int, int, int], ...] = (),
    cross: tuple[CrossSpan, ...] = (),
    max_tokens: int = 2,
) -> Request:
    """A request for tokens 0, 1, ...; pictures are (start, length, which)."""
    media = tuple(MediaSpan(picture(w, n), start, b"p" * 32) for start, n, w in pictures)
    positions = np.arange(num_prompt, dtype=np.int64)[None]
    prompt = Prompt(tuple(range(num_prompt)), media, positions, spans, cross)
    chain = ContentChain(cross_root(ROOT, cross), BLOCK, media, spans)
    params = SamplingParams(max_tokens=max_tokens)
    return Request(name, prompt, params, SCOPE, chain, BlockTable(BLOCK))


def step(sched: Scheduler) -> list[tuple[str, int, int]]:
    """Compute one step, ending requests at their length; which tokens of which request it had."""
    return shape(compute(sched))


def compute(sched: Scheduler) -> ScheduledBatch:
    batch = sched.schedule()
    sched.update(batch, {c.request.request_id: 7 for c in batch.chunks if c.samples})
    for chunk in batch.chunks:
        if chunk.request.num_output_tokens >= chunk.request.params.max_tokens:
            sched.finish(chunk.request, FinishReason.LENGTH)
    sched._pool.check()
    return batch


def shape(batch: ScheduledBatch) -> list[tuple[str, int, int]]:
    return [(c.request.request_id, c.start, c.end) for c in batch.chunks]


def test_a_chunk_ends_before_a_span_that_the_budget_would_cut():
    sched = scheduler(16, budget=6)
    sched.add(request("a", 14, spans=((4, 9),)))
    assert [step(sched) for _ in range(3)] == [[("a", 0, 4)], [("a", 4, 10)], [("a", 10, 14)]]


def test_the_budget_is_raised_for_a_span_that_is_longer():
    """The fault: a step's budget cuts a span, or nothing is ever scheduled again."""
    sched = scheduler(16, budget=3)
    sched.add(request("a", 12, spans=((2, 10),), max_tokens=1))
    sched.add(request("b", 2))
    steps = [step(sched) for _ in range(4)]
    assert steps == [[("a", 0, 2), ("b", 0, 1)], [("a", 2, 10)], [("a", 10, 12), ("b", 1, 2)],
                     [("b", 2, 3)]]  # fmt: skip


def test_the_whole_prompt_as_one_span_is_one_chunk_with_all_its_pictures():
    sched = scheduler(32, budget=4)
    a = request("a", 14, spans=((0, 14),), pictures=((0, 5, 1), (5, 4, 2)))
    sched.add(a)
    batch = compute(sched)
    assert (shape(batch), len(batch.encodes)) == ([("a", 0, 14)], 2)
    assert step(sched) == [("a", 14, 15)]


@pytest.mark.parametrize(("num_blocks", "fits"), [(6, False), (7, True)])
def test_pictures_of_one_span_need_room_at_the_same_time(num_blocks: int, fits: bool):
    # 16 tokens in 4 blocks, pictures in 2 and 1.
    a = request("a", 14, ((0, 14),), ((0, 5, 1), (5, 4, 2)))
    sched = scheduler(num_blocks)
    assert sched.fits(a) is fits
    if fits:
        sched.add(a)
        while sched.has_requests:
            compute(sched)
        assert a.num_output_tokens == 2


def test_one_picture_shown_twice_in_a_span_needs_room_once():
    twice = request("a", 14, ((0, 14),), ((0, 5, 1), (5, 5, 1)))
    assert scheduler(6).fits(twice)


def test_one_picture_in_two_details_in_a_span_needs_room_once():
    """The fault: answered 413, though its one encoder output fits."""
    pooled = Compression("mean", 1, 4, token_grid=(1, 1, 8), window=(1, 4))
    whole, less = picture(1, 8), replace(picture(1, 8), num_tokens=2, compression=pooled)
    media = (MediaSpan(whole, 0, b"p" * 32), MediaSpan(less, 8, b"p" * 32))
    a = request("a", 14, ((0, 14),))
    a.prompt = replace(a.prompt, spans=media)
    a.chain = ContentChain(ROOT, BLOCK, media, a.prompt.bidirectional)
    # 16 tokens in 4 blocks, one output in 2.
    sched = scheduler(6)
    assert sched.fits(a)
    sched.add(a)
    assert len(compute(sched).encodes) == 1
    while sched.has_requests:
        compute(sched)
    assert a.num_output_tokens == 2


def test_a_hit_inside_a_span_rolls_back_to_before_it():
    """The fault: a prefix hit ends inside a picture whose tokens see one another."""
    sched = scheduler(32)
    for name in ("a", "b"):
        sched.add(request(name, 19, spans=((6, 14),), pictures=((6, 8, 1),), max_tokens=1))
        compute(sched)
    # Whole blocks 0-3 are found, tokens 0-15: past the span.
    assert sched.counters.prefix_hit_tokens == 16
    sched._pool.uncommit([3])
    c = request("c", 19, spans=((6, 14),), pictures=((6, 8, 1),), max_tokens=1)
    sched.add(c)
    # Blocks 0-2 are found, tokens 0-11: back to block 1, which ends before the span.
    assert step(sched) == [("c", 4, 19)]


def test_a_preempted_request_computes_its_span_whole_again():
    sched = scheduler(32, budget=5)
    a = request("a", 12, spans=((3, 9),), pictures=((3, 6, 1),), max_tokens=1)
    sched.add(a)
    assert [step(sched), step(sched)] == [[("a", 0, 3)], [("a", 3, 9)]]
    sched._preempt(a)
    sched._pool.uncommit([1])
    # Block 0 was committed; token 4 lies inside the span, so not even it is used.
    assert [step(sched) for _ in range(3)] == [[("a", 0, 3)], [("a", 3, 9)], [("a", 9, 12)]]


def test_what_cross_attention_reads_is_held_until_its_last_reader():
    """The fault: K and V of a picture given up while tokens still read them, or kept for ever."""
    sched = scheduler(32, budget=5)
    cross = (CrossSpan(picture(1, 6), 3, 8, 6), CrossSpan(picture(2, 6), 8, None, 6))
    a = request("a", 12, cross=cross, max_tokens=3)
    sched.add(a)
    held = []
    while sched.has_requests:
        compute(sched)
        held.append(sorted(a.media))
    assert held == [[0, 1], [1], [1], [1], []]
    assert sched._pool.num_used == 0


def test_one_pictures_cross_attention_vectors_serve_all_requests():
    sched = scheduler(64)
    cross = (CrossSpan(picture(1, 6), 3, None, 6),)
    sched.add(request("a", 12, cross=cross))
    sched.add(request("b", 9, cross=cross))
    assert len(compute(sched).encodes) == 1
    assert sched.counters.media_hits == 1


def test_blocks_of_all_cross_attention_items_count():
    cross = (CrossSpan(picture(1, 6), 3, 8, 6), CrossSpan(picture(2, 6), 8, None, 6))
    a = request("a", 12, cross=cross, max_tokens=4)  # 4 blocks of tokens, 2 and 2 of pictures
    assert scheduler(8).fits(a)
    assert not scheduler(7).fits(a)


def test_needed_together_are_those_that_one_smallest_chunk_reads():
    needs = [(2, 5), (5, 9), (12, 14)]
    assert needed_together(needs, ()) == [[0], [1], [2]]
    assert needed_together(needs, ((0, 10),)) == [[0, 1], [2]]
    assert needed_together([(0, sys.maxsize), (0, 9)], ()) == [[0, 1]]


def random_request(rng: random.Random, name: str) -> Request:
    pictures, spans, at = [], [], rng.randrange(4)
    for _ in range(rng.choice((0, 1, 2, 3))):
        length = rng.randint(1, 9)
        pictures.append((at, length, rng.randrange(3)))
        if rng.random() < 0.7:
            spans.append((at, at + length))
        at += length + rng.randint(0, 5)
    num_prompt = at + rng.randint(1, 9)
    cross: list[CrossSpan] = []
    kind = rng.choice(("pictures", "prompt", "cross"))
    if kind == "prompt":
        spans = [(0, num_prompt)]
    if kind == "cross":
        spans, starts = [], [start for start, _, _ in pictures]
        for (start, length, which), end in zip(pictures, [*starts[1:], None], strict=False):
            cross.append(CrossSpan(picture(which, length), start, end, length))
        pictures = []
    return request(name, num_prompt, tuple(spans), tuple(pictures), tuple(cross), rng.randint(1, 9))


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("num_blocks", [14, 20, 60])
def test_no_span_is_cut_and_nothing_leaks_whatever_happens(num_blocks: int, caching: bool):
    """The faults: spans over two chunks, blocks that nobody gives back, steps without progress."""
    rng = random.Random(num_blocks)
    sched = scheduler(num_blocks, budget=rng.choice((3, 7, 20)), seqs=4, caching=caching)
    for number in range(400):
        new = random_request(rng, f"r{number}")
        if sched.fits(new) and sched.num_waiting < 6:
            sched.add(new)
        if sched.has_requests:
            batch = sched.schedule()
            for chunk in batch.chunks:
                for first, last in chunk.request.prompt.bidirectional:
                    assert not first < chunk.start < last
                    assert not first < chunk.end < last
                needed = chunk.request.media_in(chunk.start, chunk.end)
                assert set(needed) <= set(chunk.request.media)
            sched.update(batch, {c.request.request_id: 7 for c in batch.chunks if c.samples})
            for chunk in batch.chunks:
                if chunk.request.num_output_tokens >= chunk.request.params.max_tokens:
                    sched.finish(chunk.request, FinishReason.LENGTH)
        for victim in [r for r in (*sched._running, *sched._waiting) if rng.random() < 0.1]:
            sched.finish(victim, FinishReason.ABORT)
        sched._pool.check()
    for rest in [*sched._running, *sched._waiting]:
        sched.finish(rest, FinishReason.ABORT)
    assert sched._pool.num_used == 0
    assert num_blocks == 60 or sched.counters.num_preemptions > 0
