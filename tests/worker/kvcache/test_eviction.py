"""Least-recently-used where costs are equal, and worth the difference where they are not."""

from __future__ import annotations

from collections import OrderedDict

from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.eviction import EvictionQueue
from chiasm_worker.kvcache.rebuild_cost import BlockKind, Rebuild, RebuildCosts
from hypothesis import given
from hypothesis import strategies as st


def test_the_cheapest_goes_first_and_raises_the_floor_for_those_that_come_later():
    queue = EvictionQueue()
    queue.add(1, cost=5.0)
    queue.add(2, cost=1.0)
    assert (queue.pop(), queue.floor) == (2, 1.0)
    for entry in (3, 4, 5):
        queue.add(entry, cost=1.0)
        assert queue.pop() == entry
    queue.add(6, cost=1.0)
    assert (queue.pop(), queue.floor) == (1, 5.0)  # as much credit as 6, and longer unused


def test_what_has_a_reader_again_is_not_given_up():
    queue = EvictionQueue()
    queue.add(1, cost=1.0)
    queue.add(2, cost=1.0)
    queue.discard(1)
    assert (1 in queue, len(queue)) == (False, 1)
    assert queue.pop() == 2
    queue.add(1, cost=1.0)
    assert queue.pop() == 1


def test_an_entry_that_moves_counts_once_and_the_heap_does_not_grow():
    queue = EvictionQueue()
    for number in range(10_000):
        queue.add(number % 7, cost=1.0)
    assert len(queue) == 7
    assert len(queue._heap) < 100
    assert [queue.pop() for _ in range(7)] == [(10_000 + i) % 7 for i in range(7)]


@given(st.lists(st.tuples(st.sampled_from(["touch", "evict"]), st.integers(0, 9))))
def test_equal_costs_mean_least_recently_used(moves: list[tuple[str, int]]):
    queue, lru = EvictionQueue(), OrderedDict[int, None]()
    for move, entry in moves:
        if move == "touch":
            queue.add(entry, cost=3.0)
            lru.pop(entry, None)
            lru[entry] = None
        elif lru:
            assert queue.pop() == lru.popitem(last=False)[0]
    assert len(queue) == len(lru)


def encodes_under_a_flood(costs: RebuildCosts, num_blocks: int = 40) -> int:
    """Five pictures, one asked about again after every twelve short texts: how many encodes?"""
    pool = BlockPool(num_blocks, costs)
    num_encodes, number = 0, 0
    for turn in range(200):
        for _ in range(12):
            blocks = pool.allocate(2)
            assert blocks is not None
            for block_id in blocks:
                key = f"text {number}".encode()
                pool.commit(block_id, key, key, Rebuild(BlockKind.TEXT_KV, 16))
                number += 1
            pool.release(blocks)
        keys = [f"picture {turn % 5} {part}".encode() for part in range(4)]
        found = [pool.lookup(key, key) for key in keys]
        picture = [block_id for block_id in found if block_id is not None]
        if len(picture) == 4:
            pool.acquire(picture)
        else:
            num_encodes += 1
            fresh = pool.allocate(4)
            assert fresh is not None
            picture = fresh
            for part, block_id in enumerate(picture):
                tokens = 64 if part == 0 else 0
                rebuild = Rebuild(BlockKind.ENCODER_OUTPUT, tokens, "image")
                pool.commit(block_id, keys[part], keys[part], rebuild)
            pool.bind(picture)
        pool.release(reversed(picture))
        pool.check()
    return num_encodes


def test_pictures_survive_a_flood_of_short_texts_that_plain_lru_would_drown_them_in():
    equal, measured = RebuildCosts(), RebuildCosts()
    equal.observe_prefill(1, 1.0)
    equal.observe_encode("image", 1, 1.0)
    measured.observe_prefill(1000, 0.1)
    measured.observe_encode("image", 1000, 2.0)
    # As many seconds a block: the policy is least-recently-used and each picture is gone by the
    # time that it is asked about again.
    assert encodes_under_a_flood(equal) == 200
    assert encodes_under_a_flood(measured) == 5
