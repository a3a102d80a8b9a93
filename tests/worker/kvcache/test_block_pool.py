"""Exact block ids tell the stories; a state machine looks for others."""

from __future__ import annotations

import pytest
from chiasm_contract.errors import InvariantError
from chiasm_worker.kvcache.block_pool import BlockPool
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule


def counts(pool: BlockPool) -> tuple[int, int, int]:
    pool.check()
    return pool.num_free, pool.num_cached, pool.num_used


def test_free_blocks_go_out_in_order_and_come_back_last():
    pool = BlockPool(4)
    assert pool.allocate(2) == [0, 1]
    pool.release([1, 0])
    assert pool.allocate(4) == [2, 3, 1, 0]
    assert counts(pool) == (0, 0, 4)


def test_too_many_is_refused_without_a_trace():
    pool = BlockPool(3)
    assert pool.allocate(2) == [0, 1]
    assert pool.allocate(2) is None
    assert counts(pool) == (1, 0, 2)


def test_a_committed_block_is_found_while_used_and_while_cached():
    pool = BlockPool(2)
    pool.allocate(1)
    assert pool.commit(0, b"k", "content")
    assert pool.lookup(b"k", "content") == 0
    pool.release([0])
    assert counts(pool) == (1, 1, 0)
    assert pool.lookup(b"k", "content") == 0
    pool.acquire([0])
    assert pool.ref_cnt(0) == 1
    assert counts(pool) == (1, 0, 1)


def test_a_colliding_key_is_a_miss():
    pool = BlockPool(1)
    pool.allocate(1)
    pool.commit(0, b"k", "a red tin")
    assert pool.lookup(b"k", "a blue tin") is None


def test_the_second_of_two_equal_blocks_stays_unfindable():
    pool = BlockPool(2)
    pool.allocate(2)
    assert pool.commit(0, b"k", "same")
    assert not pool.commit(1, b"k", "same")
    pool.release([0, 1])
    assert counts(pool) == (1, 1, 0)


def test_free_blocks_are_taken_before_cached_ones_and_those_least_recently_used_first():
    pool = BlockPool(3)
    pool.allocate(3)
    for block_id in (0, 1):
        pool.commit(block_id, bytes([block_id]), block_id)
    pool.release([1, 0, 2])
    assert counts(pool) == (1, 2, 0)
    assert pool.allocate(2) == [2, 1]
    assert pool.lookup(b"\x01", 1) is None
    assert pool.lookup(b"\x00", 0) == 0


def test_a_generation_passes_when_content_is_given_up():
    pool = BlockPool(1)
    pool.allocate(1)
    pool.commit(0, b"k", "x")
    pool.release([0])
    assert pool.slot_gen(0) == 0
    pool.allocate(1)
    assert pool.slot_gen(0) == 1
    pool.release([0])
    assert pool.slot_gen(0) == 2


def test_uncommitted_content_is_not_found_again():
    pool = BlockPool(2)
    pool.allocate(2)
    for block_id in (0, 1):
        pool.commit(block_id, bytes([block_id]), block_id)
    pool.release([1])
    pool.uncommit([0, 1])
    assert pool.lookup(b"\x00", 0) is None
    assert pool.lookup(b"\x01", 1) is None
    assert counts(pool) == (1, 0, 1)


def test_contradictions_are_bugs():
    pool = BlockPool(2)
    with pytest.raises(InvariantError, match="Block 0 is free and cannot gain a reader"):
        pool.acquire([0])
    with pytest.raises(InvariantError, match="ref_cnt 0 and was released again"):
        pool.release([0])
    with pytest.raises(InvariantError, match="cannot be committed"):
        pool.commit(0, b"k", "x")


class PoolMachine(RuleBasedStateMachine):
    """Random use by readers that keep their own books."""

    @initialize(size=st.integers(1, 12))
    def start(self, size: int) -> None:
        self.pool = BlockPool(size)
        self.held: list[list[int]] = []

    @rule(count=st.integers(0, 6))
    def allocate(self, count: int) -> None:
        possible = self.pool.num_allocatable
        got = self.pool.allocate(count)
        assert (got is None) == (count > possible)
        if got:
            assert len(set(got)) == count
            assert not set(got) & {block for holder in self.held for block in holder}
            self.held.append(got)

    @rule(data=st.data(), key=st.integers(0, 5))
    def commit(self, data: st.DataObject, key: int) -> None:
        fresh = [b for holder in self.held for b in holder if self.pool._blocks[b].key is None]
        if fresh:
            block = data.draw(st.sampled_from(sorted(set(fresh))))
            self.pool.commit(block, bytes([key]), key)

    @rule(key=st.integers(0, 5))
    def hit(self, key: int) -> None:
        block = self.pool.lookup(bytes([key]), key)
        if block is not None:
            self.pool.acquire([block])
            self.held.append([block])

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.held:
            self.pool.release(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))

    @rule(key=st.integers(0, 5))
    def uncommit(self, key: int) -> None:
        block = self.pool.lookup(bytes([key]), key)
        if block is not None:
            self.pool.uncommit([block])

    @invariant()
    def books_agree(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check()
        flat = [block for holder in self.held for block in holder]
        assert self.pool.num_used == len(set(flat))
        for block in set(flat):
            assert self.pool.ref_cnt(block) == flat.count(block)


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
