"""One piece of work at a time, shared by those who ask for it meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from chiasm_contract.shared_work import SharedWork


class Work:
    """Ends when it is told; counts how often it began."""

    def __init__(self) -> None:
        self.num_begun = 0
        self.go_on = asyncio.Event()

    async def __call__(self) -> int:
        self.num_begun += 1
        await self.go_on.wait()
        return self.num_begun


async def test_those_who_ask_meanwhile_share_it() -> None:
    turns, work = SharedWork[int](pause_seconds=0), Work()
    asking = [asyncio.create_task(turns.take(work)) for _ in range(5)]
    await asyncio.sleep(0.01)
    work.go_on.set()
    assert await asyncio.gather(*asking) == [1] * 5
    assert await turns.take(work) == 2


async def test_who_leaves_ends_it_for_nobody() -> None:
    turns, work = SharedWork[int](pause_seconds=0), Work()
    leaving, staying = (asyncio.create_task(turns.take(work)) for _ in range(2))
    await asyncio.sleep(0.01)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    work.go_on.set()
    assert await staying == 1


async def test_between_two_lies_a_pause() -> None:
    turns, work = SharedWork[int](pause_seconds=3600), Work()
    work.go_on.set()
    assert await turns.take(work) == 1
    second = asyncio.create_task(turns.take(work))
    await asyncio.sleep(0.01)
    assert work.num_begun == 1
    await turns.close()
    with pytest.raises(asyncio.CancelledError):
        await second


async def test_a_fault_reaches_all_and_the_next_one_begins_anew() -> None:
    turns = SharedWork[int](pause_seconds=0)

    async def fails() -> int:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def works() -> int:
        await asyncio.sleep(0)
        return 7

    told = await asyncio.gather(turns.take(fails), turns.take(fails), return_exceptions=True)
    assert [str(each) for each in told] == ["no", "no"]
    assert await turns.take(works) == 7
