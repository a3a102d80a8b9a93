"""What a step computes, in exact numbers; and that nothing leaks whatever happens."""

from __future__ import annotations

import random

import pytest
from chiasm_worker.request import FinishReason, Request, RequestStatus
from chiasm_worker.sched.scheduler import Scheduler

from tests.worker.sched.conftest import compute, request, scheduler, shape


def test_a_prompt_is_cut_to_the_budget_and_then_decoded():
    sched = scheduler(8, budget=6)
    sched.add(request("a", 14, max_tokens=2))
    steps = [shape(compute(sched)) for _ in range(4)]
    assert steps == [
        [("a", 0, 6, False)],
        [("a", 6, 6, False)],
        [("a", 12, 2, True)],
        [("a", 14, 1, True)],
    ]
    assert not sched.has_requests


def test_decoding_comes_before_the_next_prompt():
    sched = scheduler(16, budget=6)
    sched.add(request("a", 4, max_tokens=3))
    compute(sched)
    sched.add(request("b", 10, first=50))
    assert shape(sched.schedule()) == [("a", 4, 1, True), ("b", 0, 5, False)]


def test_num_seqs_bounds_the_running():
    sched = scheduler(16, seqs=1)
    sched.add(request("a", 4))
    sched.add(request("b", 4, first=50))
    assert [c.request.request_id for c in sched.schedule().chunks] == ["a"]
    assert (sched.num_running, sched.num_waiting) == (1, 1)


def test_blocks_come_as_tokens_do():
    sched = scheduler(8)
    a = request("a", 5, max_tokens=5)
    sched.add(a)
    compute(sched)
    assert a.table.block_ids == [0, 1]
    for _ in range(3):
        compute(sched)
    assert a.table.block_ids == [0, 1]
    compute(sched)  # token 9 is computed: a third block held until the end
    assert sched._pool.num_used == 0


def test_a_prefix_hit_shares_blocks_and_skips_their_tokens():
    sched = scheduler(16)
    a, b = request("a", 10), request("b", 10)
    sched.add(a)
    compute(sched)
    sched.add(b)
    batch = compute(sched)
    assert shape(batch) == [("a", 10, 1, True), ("b", 8, 2, True)]
    assert b.table.block_ids[:2] == a.table.block_ids[:2] == [0, 1]
    assert b.num_cached_tokens == 8
    assert sched.counters.prefix_hit_tokens == 8


def test_without_prefix_caching_nothing_is_shared():
    sched = scheduler(16, caching=False)
    sched.add(request("a", 10))
    compute(sched)
    sched.add(request("b", 10))
    assert shape(sched.schedule())[1] == ("b", 0, 10, True)


def test_the_last_admitted_gives_way_and_comes_back_with_its_tokens():
    sched = scheduler(4)
    a, b = request("a", 8, max_tokens=8), request("b", 7, max_tokens=3, first=50)
    sched.add(a)
    sched.add(b)
    compute(sched)
    assert (a.table.block_ids, b.table.block_ids) == ([0, 1], [2, 3])
    batch = compute(sched, token=8)  # a needs a third block
    assert shape(batch) == [("a", 8, 1, True)]
    assert b.status is RequestStatus.WAITING
    assert (b.num_computed_tokens, b.num_preemptions, b.token_ids[-1]) == (0, 1, 7)
    while sched.has_requests:
        compute(sched)
        sched._pool.check()
    assert b.output_token_ids == [7, 7, 7]
    assert b.finish_reason is FinishReason.LENGTH


def test_an_older_request_is_never_preempted_for_a_younger_one():
    sched = scheduler(4)
    a, b = request("a", 8, max_tokens=8), request("b", 7, max_tokens=9, first=50)
    sched.add(a)
    sched.add(b)
    while sched.has_requests:
        compute(sched)
    assert a.num_preemptions == 0
    assert b.num_preemptions > 0


def test_a_picture_is_encoded_in_the_step_that_first_touches_it_and_held_to_its_end():
    sched = scheduler(16, budget=4)
    a = request("a", 14, pictures=((6, 5, 1),))
    sched.add(a)
    encodes = []
    held = []
    for _ in range(4):
        encodes.append([job.span_index for job in compute(sched).encodes])
        held.append(list(a.media))
    # chunks 0-3, 4-7, 8-11 and 12-13; the picture is 6-10
    assert encodes == [[], [0], [], []]
    assert held == [[], [0], [], []]


def test_one_picture_in_two_requests_is_encoded_once():
    sched = scheduler(32)
    sched.add(request("a", 12, pictures=((2, 5, 1),)))
    sched.add(request("b", 12, pictures=((6, 5, 1),), first=50))
    batch = compute(sched)
    assert [(job.request.request_id, job.span_index) for job in batch.encodes] == [("a", 0)]
    assert (sched.counters.media_queries, sched.counters.media_hits) == (2, 1)


def test_a_prefix_hit_over_the_picture_needs_no_encoder_output():
    sched = scheduler(32)
    sched.add(request("a", 12, pictures=((2, 5, 1),)))
    compute(sched)
    sched.add(request("b", 13, pictures=((2, 5, 1),)))
    assert compute(sched).encodes == []
    assert sched.counters.media_queries == 1
    assert sched.counters.media_in_prefix == 1


def test_later_answers_to_one_prompt_save_no_encoder_call():
    """Without any cache they would not need one either."""
    sched = scheduler(32)
    sched.add(request("a", 12, pictures=((2, 5, 1),)))
    compute(sched)
    assert sched.counters.media_in_prefix == 0
    second = request("b", 13, pictures=((2, 5, 1),))
    second.choice = 1
    sched.add(second)
    compute(sched)
    assert sched.counters.media_in_prefix == 0


def test_waiting_requests_are_told_by_what_they_brought():
    sched = scheduler(32)
    sched.add(request("a", 12, pictures=((2, 5, 1),)))
    sched.add(request("b", 12, first=50))
    sched.add(request("c", 12, first=70))
    assert sched.waiting_modalities() == {"image": 1, "text": 2}
    compute(sched)
    assert sched.waiting_modalities() == {}


def test_a_chunk_is_cut_before_the_picture_that_does_not_fit():
    # 14 tokens need 4 blocks, each picture 2: together 8, but there are 7.
    sched = scheduler(7)
    a = request("a", 14, max_tokens=1, pictures=((1, 5, 1), (7, 5, 2)))
    assert sched.fits(a)
    sched.add(a)
    assert shape(compute(sched)) == [("a", 0, 7, False)]
    assert shape(compute(sched)) == [("a", 7, 7, True)]


@pytest.mark.parametrize(("num_blocks", "fits"), [(5, False), (6, True)])
def test_fits_counts_all_tokens_and_the_largest_picture(num_blocks: int, fits: bool):
    a = request("a", 10, max_tokens=6, pictures=((0, 3, 1), (4, 5, 2)))
    assert scheduler(num_blocks).fits(a) is fits


def test_a_failed_step_leaves_no_output_to_be_found_or_held():
    """The fault: one who shares a picture reads the output that the failed step never wrote."""
    sched = scheduler(16)
    a, b = request("a", 8, pictures=((2, 5, 1),)), request("b", 8, 4, ((1, 5, 1),), first=50)
    words = request("words", 6, first=90)
    for each in (words, a, b):
        sched.add(each)
    batch = sched.schedule()
    assert len(batch.encodes) == 1
    assert a.media[0].block_ids == b.media[0].block_ids
    sched.abandon(batch)
    sched.check()
    assert (a.media, b.media) == ({}, {})
    assert words.status is RequestStatus.RUNNING
    sched.finish(a, FinishReason.ABORT)
    again = sched.schedule()
    assert shape(again) == [("words", 0, 6, True), ("b", 0, 8, True)]
    assert [job.request.request_id for job in again.encodes] == ["b"]
    sched.abandon(again)
    sched.finish(b, FinishReason.ABORT)
    sched.finish(words, FinishReason.ABORT)
    assert (sched._pool.num_used, sched._pool.num_cached) == (0, 0)


def random_request(rng: random.Random, name: str) -> Request:
    pictures, at = [], rng.randrange(4)
    for _ in range(rng.choice((0, 0, 1, 2))):
        length = rng.randint(1, 9)
        pictures.append((at, length, rng.randrange(3)))
        at += length + rng.randint(0, 5)
    return request(name, at + rng.randint(1, 12), rng.randint(1, 9), tuple(pictures))


def random_step(sched: Scheduler, rng: random.Random) -> int:
    """Compute a step or fail it; returns how many requests the failure ended."""
    batch = sched.schedule()
    assert batch.num_tokens <= sched._limits.max_num_batched_tokens
    for chunk in batch.chunks:
        assert chunk.request.table.num_missing(chunk.end) == 0
        assert set(chunk.request.spans_in(chunk.start, chunk.end)) <= set(chunk.request.media)
    if rng.random() < 0.05:
        sched.abandon(batch)
        blamed = rng.sample(batch.chunks, rng.randint(1, len(batch.chunks)))
        for chunk in blamed:
            sched.finish(chunk.request, FinishReason.ABORT)
        return len(blamed)
    sched.update(batch, {c.request.request_id: 7 for c in batch.chunks if c.samples})
    for chunk in batch.chunks:
        if chunk.request.num_output_tokens >= chunk.request.params.max_tokens:
            sched.finish(chunk.request, FinishReason.LENGTH)
    return 0


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("num_blocks", [12, 16, 40])
def test_nothing_leaks_over_thousands_of_random_cancels(num_blocks: int, caching: bool):
    rng = random.Random(num_blocks)
    sched = scheduler(num_blocks, budget=rng.choice((3, 7, 20)), seqs=4, caching=caching)
    num_cancels, number = 0, 0
    while num_cancels < 1700:
        for _ in range(rng.randrange(3)):
            new = random_request(rng, f"r{number}")
            number += 1
            if sched.fits(new) and sched.num_waiting < 6:
                sched.add(new)
        if sched.has_requests:
            num_cancels += random_step(sched, rng)
        for victim in [r for r in (*sched._running, *sched._waiting) if rng.random() < 0.1]:
            sched.finish(victim, FinishReason.ABORT)
            num_cancels += 1
        sched.check()
    for rest in [*sched._running, *sched._waiting]:
        sched.finish(rest, FinishReason.ABORT)
    sched.check()
    assert sched._pool.num_used == 0
    assert sched._pool.num_free + sched._pool.num_cached == num_blocks
    assert num_blocks == 40 or sched.counters.num_preemptions > 0
