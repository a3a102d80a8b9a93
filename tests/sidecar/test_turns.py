"""Askers are served one at a time, with a pause between them, or told to come back."""

from __future__ import annotations

import asyncio

import pytest
from chiasm_contract.errors import Overloaded
from chiasm_sidecar.turns import Turns


async def test_one_at_a_time() -> None:
    turns = Turns(between_seconds=0.0)
    inside = most = 0

    async def ask() -> None:
        nonlocal inside, most
        async with turns.turn():
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(ask() for _ in range(5)))
    assert most == 1


async def test_the_next_one_waits_for_the_pause() -> None:
    now = 0.0
    turns = Turns(between_seconds=0.02, clock=lambda: now)
    async with turns.turn():
        pass
    started = asyncio.get_running_loop().time()
    async with turns.turn():
        assert asyncio.get_running_loop().time() - started >= 0.015


async def test_nobody_waits_for_ever() -> None:
    turns = Turns(patience_seconds=0.01)
    async with turns.turn():
        with pytest.raises(Overloaded) as refused:
            async with turns.turn():
                pass
    assert refused.value.retry_after_seconds == 1


async def test_a_turn_that_fails_ends() -> None:
    turns = Turns(between_seconds=0.0)
    with pytest.raises(ZeroDivisionError):
        async with turns.turn():
            1 / 0  # noqa: B018
    async with turns.turn():
        pass
