"""Blocks in use are those that requests hold, whatever comes and goes; one that is not is seen."""

from __future__ import annotations

from chiasm_worker.checkup.books import Books, read_books
from chiasm_worker.kvcache.media_cache import MediaHandle
from chiasm_worker.request import FinishReason
from chiasm_worker.sched.scheduler import Scheduler
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.sched.conftest import SPEC, compute, request, scheduler

ACTION = st.tuples(st.sampled_from(["add", "step", "step", "abort"]), st.integers(0, 2**16))


def books(sched: Scheduler) -> Books:
    return read_books(sched._pool, sched.requests, 0, SPEC.record_bytes)


@given(st.lists(ACTION, max_size=40), st.booleans())
def test_the_books_of_a_sound_engine_agree_at_every_moment(
    actions: list[tuple[str, int]], caching: bool
) -> None:
    sched = scheduler(num_blocks=24, budget=16, caching=caching)
    for number, (action, chance) in enumerate(actions):
        if action == "add":
            length = 2 + chance % 30
            picture = ((1, length - 1, chance % 3),) if chance % 2 else ()
            new = request(f"r{number}", length, 1 + chance % 7, picture, first=100 * (chance % 3))
            if sched.fits(new):
                sched.add(new)
        elif action == "abort" and sched.requests:
            gone = sched.requests[chance % len(sched.requests)]
            sched.finish(gone, FinishReason.ABORT)
        elif sched.has_requests:
            compute(sched)
        read = books(sched)
        assert read.num_used == read.num_held
        assert (read.num_unexplained, read.num_miscounted, read.num_unread) == (0, 0, 0)


def running(num_pictures: int = 0) -> Scheduler:
    sched = scheduler(num_blocks=24, budget=6)
    pictures = ((1, 8, 1),) if num_pictures else ()
    sched.add(request("a", 12, 8, pictures))
    compute(sched)
    assert books(sched).num_unexplained == 0
    return sched


def test_a_block_of_nobody_is_seen() -> None:
    sched = running()
    sched._pool.allocate(2)
    read = books(sched)
    assert (read.num_used - read.num_held, read.num_unexplained) == (2, 2)


def test_blocks_beyond_what_tokens_need_are_seen() -> None:
    sched = running()
    more = sched._pool.allocate(3)
    assert more is not None
    sched.requests[0].table.block_ids += more
    assert (books(sched).num_surplus, books(sched).num_unexplained) == (2, 2)  # one for what comes


def test_media_that_no_coming_token_reads_are_seen() -> None:
    sched = running(1)
    done = sched.requests[0]
    handle = done.media[0]
    assert isinstance(handle, MediaHandle)
    compute(sched)
    assert not done.media, "the picture has been read"
    sched._pool.acquire(handle.block_ids)
    done.media[0] = handle
    assert books(sched).num_orphans == len(handle.block_ids) == books(sched).num_unexplained


def test_a_block_that_is_read_and_counts_as_free_is_seen() -> None:
    sched = running()
    sched._pool.release(sched.requests[0].table.block_ids[-1:])
    read = books(sched)
    assert (read.num_unread, read.num_miscounted) == (1, 1)


def test_a_reader_too_many_is_seen() -> None:
    sched = running()
    sched._pool.acquire(sched.requests[0].table.block_ids[:1])
    read = books(sched)
    assert (read.num_miscounted, read.num_unexplained) == (1, 0)
