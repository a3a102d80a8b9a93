"""Exact block ids tell the stories; a state machine looks for others."""

from __future__ import annotations

import pytest
from chiasm_contract.errors import InvariantError
from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.rebuild_cost import BlockKind, Rebuild
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
    assert pool.commit(0, b"k", "content") == 0
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
    assert pool.commit(0, b"k", "same") == 0
    assert pool.commit(1, b"k", "same") == 0
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


def test_a_prefix_never_loses_its_beginning_before_its_end():
    pool = BlockPool(4)
    pool.allocate(3)
    for block_id in range(3):
        parent = bytes([block_id - 1]) if block_id else None
        rebuild = Rebuild(BlockKind.TEXT_KV, 100 if block_id == 2 else 1)
        pool.commit(block_id, bytes([block_id]), block_id, rebuild, parent)
    pool.release([0])
    pool.release([1])
    pool.release([2])  # the last block is worth most, and worth nothing without the others
    assert pool.allocate(2) == [3, 2]
    pool.check()
    assert pool.allocate(2) == [1, 0]


def test_a_beginning_that_is_read_stays_behind_its_cached_end():
    pool = BlockPool(3)
    pool.allocate(2)
    pool.commit(0, b"a", 0, Rebuild(BlockKind.TEXT_KV, 1))
    pool.commit(1, b"b", 1, Rebuild(BlockKind.MEDIA_KV, 50), b"a")
    pool.release([1])
    pool.release([0])
    assert pool.allocate(2) == [2, 1]
    assert pool.num_evictions == {BlockKind.MEDIA_KV: 1}
    assert pool.lookup(b"a", 0) == 0


def test_what_is_wanted_again_outlasts_what_was_used_once():
    pool = BlockPool(2)
    pool.allocate(2)
    for block_id in (0, 1):
        pool.commit(block_id, bytes([block_id]), block_id)
    pool.release([0])
    pool.acquire([0])
    pool.release([0])
    pool.release([1])
    assert pool.allocate(1) == [1]


def test_a_reader_that_could_not_begin_shows_no_demand():
    pool = BlockPool(2)
    pool.allocate(2)
    for block_id in (0, 1):
        pool.commit(block_id, bytes([block_id]), block_id)
    pool.release([0])
    for _ in range(5):
        pool.acquire([0])
        pool.release([0], was_used=False)
    pool.release([1])
    assert pool.allocate(1) == [0]


def test_an_entry_is_given_up_whole():
    pool = BlockPool(3)
    pool.allocate(3)
    for block_id in range(3):
        pool.commit(block_id, bytes([block_id]), block_id)
    pool.bind([0, 1])
    pool.release([1])
    pool.release([2])
    pool.release([0])  # only now can the entry be given up, so it is younger than block 2
    assert pool.allocate(1) == [2]
    assert pool.allocate(1) == [0]
    assert counts(pool) == (1, 0, 2)
    with pytest.raises(InvariantError, match="cannot join an entry"):
        pool.bind([1])


def test_an_entry_is_uncommitted_whole():
    pool = BlockPool(2)
    pool.allocate(2)
    for block_id in range(2):
        pool.commit(block_id, bytes([block_id]), block_id)
    pool.bind([0, 1])
    pool.release([1, 0])
    pool.uncommit([1])
    assert pool.lookup(bytes([0]), 0) is None
    assert counts(pool) == (2, 0, 0)


def test_what_is_findable_is_counted_by_kind_and_modality():
    pool = BlockPool(2)
    pool.allocate(2)
    pool.commit(0, b"a", 0, Rebuild(BlockKind.TEXT_KV, 1))
    pool.commit(1, b"b", 1, Rebuild(BlockKind.CROSS_KV, 1, "image"))
    assert pool.num_findable == {(BlockKind.TEXT_KV, "text"): 1, (BlockKind.CROSS_KV, "image"): 1}
    pool.uncommit([1])
    assert pool.num_findable[BlockKind.CROSS_KV, "image"] == 0


KINDS = st.sampled_from(list(BlockKind))


class PoolMachine(RuleBasedStateMachine):
    """Random use of all kinds by readers that keep their own books.

    Contents are numbers; number n > 0 of a chain is found only behind number n - 1.
    """

    @initialize(size=st.integers(1, 12))
    def start(self, size: int) -> None:
        self.pool = BlockPool(size)
        self.held: list[list[int]] = []
        self.gens: dict[bytes, tuple[int, int]] = {}  # key -> block and generation when committed

    @rule(count=st.integers(0, 6))
    def allocate(self, count: int) -> None:
        possible = self.pool.num_allocatable
        got = self.pool.allocate(count)
        assert (got is None) == (count > possible)
        if got:
            assert len(set(got)) == count
            assert not set(got) & {block for holder in self.held for block in holder}
            self.held.append(got)

    @rule(data=st.data(), kind=KINDS, tokens=st.integers(1, 64), chain=st.integers(0, 2))
    def commit_next_of_a_chain(
        self, data: st.DataObject, kind: BlockKind, tokens: int, chain: int
    ) -> None:
        """As a request does: it holds its whole prefix and commits the block behind it."""
        prefix: list[int] = []
        while True:
            key = bytes([chain, len(prefix)])
            block = self.pool.lookup(key, key)
            if block is None:
                break
            prefix.append(block)
        self.pool.acquire(prefix)
        got = self.pool.allocate(1)
        if got is None:
            self.pool.release(reversed(prefix))
            return
        parent = bytes([chain, len(prefix) - 1]) if prefix else None
        assert self.pool.commit(got[0], key, key, Rebuild(kind, tokens), parent) == got[0]
        self.gens[key] = (got[0], self.pool.slot_gen(got[0]))
        if data.draw(st.booleans()):
            self.pool.release(reversed([*prefix, *got]))
        else:
            self.held.append([*prefix, *got])

    @rule(number=st.integers(0, 3), count=st.integers(1, 4), tokens=st.integers(1, 64))
    def hold_an_entry(self, number: int, count: int, tokens: int) -> None:
        """As for an encoder output: all of its blocks or none."""
        keys = [bytes([9, number, count, part]) for part in range(count)]
        found = [self.pool.lookup(key, key) for key in keys]
        blocks = [block for block in found if block is not None]
        assert len(blocks) in (0, count)
        if blocks:
            self.pool.acquire(blocks)
        else:
            fresh = self.pool.allocate(count)
            if fresh is None:
                return
            blocks = fresh
            for key, block in zip(keys, blocks, strict=True):
                rebuild = Rebuild(BlockKind.ENCODER_OUTPUT, tokens, "image")
                self.pool.commit(block, key, key, rebuild)
                self.gens[key] = (block, self.pool.slot_gen(block))
            self.pool.bind(blocks)
        self.held.append(blocks)

    @rule(number=st.integers(0, 3), count=st.integers(1, 4))
    def take_an_entry_back(self, number: int, count: int) -> None:
        keys = [bytes([9, number, count, part]) for part in range(count)]
        found = [self.pool.lookup(key, key) for key in keys]
        self.pool.uncommit([block for block in found if block is not None])
        assert all(self.pool.lookup(key, key) is None for key in keys)

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.held:
            held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
            self.pool.release(reversed(held))

    @invariant()
    def books_agree(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check()
        flat = [block for holder in self.held for block in holder]
        assert self.pool.num_used == len(set(flat))
        assert self.pool.num_free + self.pool.num_cached + len(set(flat)) == self.pool.num_blocks
        for block in set(flat):
            assert self.pool.ref_cnt(block) == flat.count(block)

    @invariant()
    def nothing_is_readable_after_it_was_given_up(self) -> None:
        for key, (block, gen) in getattr(self, "gens", {}).items():
            given_up = self.pool.slot_gen(block) != gen
            assert self.pool.lookup(key, key) == (None if given_up else block)


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=40)
