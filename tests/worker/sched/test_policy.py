from __future__ import annotations

import numpy as np
import pytest
from chiasm_worker.kvcache.block_table import BlockTable
from chiasm_worker.kvcache.prefix_cache import CacheScope, ContentChain
from chiasm_worker.request import Prompt, Request, SamplingParams
from chiasm_worker.sched.policy import PLACES_PER_PRIORITY, RankedQueue, rank, rank_beside


def arrived(number: int, priority: int = 0) -> Request:
    prompt = Prompt((1,), (), np.zeros((1, 1), dtype=np.int64))
    scope, chain = CacheScope("a" * 64, b"r"), ContentChain(b"r", 4, ())
    params = SamplingParams(1)
    request = Request(f"r{number}", prompt, params, scope, chain, BlockTable(4), priority)
    request.rank = rank(number, priority)
    return request


def test_requests_come_in_the_order_of_their_ranks_wherever_they_were():
    a, b, c = (arrived(number) for number in range(3))
    queue = RankedQueue()
    queue.add(c)
    queue.add(a)
    queue.add(b)
    assert (queue.peek(0), queue.last(), len(queue)) == (a, c, 3)
    queue.remove(b)
    assert list(queue) == [a, c]
    queue.add(b)
    assert list(queue) == [a, b, c]
    for request in (a, b, c):
        queue.remove(request)
    assert queue.peek(0) is None


def test_a_lower_priority_is_served_earlier():
    queue = RankedQueue()
    for request in (arrived(0, 1), arrived(1), arrived(2, -1)):
        queue.add(request)
    assert [request.request_id for request in queue] == ["r2", "r1", "r0"]


def test_a_request_beside_another_stands_between_it_and_the_next():
    first, following = rank(0, 0), rank(1, 0)
    beside = [rank_beside(first, arrival) for arrival in (7, 8)]
    assert sorted([following, *beside, first]) == [first, *beside, following]


@pytest.mark.parametrize("steps", [1, 3])
def test_a_request_is_overtaken_by_a_bounded_number_of_later_ones(steps: int):
    first = rank(0, 0)
    overtaking = [number for number in range(1, 1000) if rank(number, -steps) < first]
    assert len(overtaking) == steps * PLACES_PER_PRIORITY - 1
