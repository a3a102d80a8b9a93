"""A request that found no room costs next to nothing until it may find some, and then goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.request import Request, RequestStatus
from chiasm_worker.sched.scheduler import Scheduler

from tests.worker.sched.conftest import compute, request, scheduler


def refused(num_blocks: int, shared: int, caching: bool = True) -> tuple[Scheduler, Request]:
    """A long answer that holds 13 blocks, and a head of the queue, whose prefix is cached."""
    sched = scheduler(num_blocks, caching=caching)
    sched.add(request("earlier", shared, max_tokens=1))
    compute(sched)
    sched.add(request("long", 8, max_tokens=80, first=500))
    for _ in range(44):
        compute(sched)
    head = request("head", 48, max_tokens=1)
    sched.add(head)
    compute(sched)
    assert (head.status, sched.num_waiting) == (RequestStatus.WAITING, 1)
    return sched, head


def counted(name: str, calls: Counter[str]) -> Callable[..., Any]:
    original = getattr(BlockPool, name)

    def call(*args: Any, **options: Any) -> Any:
        calls[name] += 1
        return original(*args, **options)

    return call


@pytest.mark.parametrize("caching", [True, False])
def test_waiting_costs_the_same_whatever_the_prefix(caching: bool, monkeypatch: pytest.MonkeyPatch):
    """The fault: each step looks up, holds and lets go every block of the head's prefix."""
    sched, head = refused(24, 40, caching)
    calls: Counter[str] = Counter()
    for name in ("lookup", "acquire", "release"):
        original = getattr(BlockPool, name)

        def counted(
            pool: BlockPool, *args: Any, _n: str = name, _f: Any = original, **kw: Any
        ) -> Any:
            calls[_n] += 1
            return _f(pool, *args, **kw)

        monkeypatch.setattr(BlockPool, name, counted)
    for _ in range(8):
        compute(sched)
    assert head.status is RequestStatus.WAITING
    assert calls["acquire"] == calls["release"] == 0
    assert calls["lookup"] <= 8


def test_it_goes_on_in_the_step_that_gives_it_room():
    sched, head = refused(24, 40)
    while sched.num_running:
        assert head.status is RequestStatus.WAITING
        compute(sched)
    compute(sched)
    assert not sched.has_requests
    assert head.num_output_tokens == 1


def test_it_goes_on_when_another_has_computed_what_it_lacked():
    """The fault: of two equal prompts, the second waits for the whole answer to the first."""
    sched = scheduler(14)
    first, second = request("first", 41, max_tokens=9), request("second", 41, max_tokens=2)
    sched.add(first)
    sched.add(second)
    compute(sched)
    assert second.status is RequestStatus.WAITING, "11 of 14 blocks are the first one's"
    while second.finish_reason is None:
        compute(sched)
        sched.check()
    assert first.finish_reason is None
    assert second.num_cached_tokens == 40


def test_another_head_is_tried_for_itself():
    sched, head = refused(24, 40)
    sched.add(request("small", 4, max_tokens=1, first=900, priority=-1))
    batch = compute(sched)
    assert [c.request.request_id for c in batch.chunks] == ["long", "small"]
    assert head.status is RequestStatus.WAITING
