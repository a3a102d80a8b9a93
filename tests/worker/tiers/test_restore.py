"""What comes from tiers leaves the pool's books in order, whoever lies, runs or is aborted."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from chiasm_contract.block_guard import ABSENT, USE
from chiasm_contract.block_wire import Found, Tier
from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.media_cache import MediaCache
from chiasm_worker.kvcache.rebuild_cost import BlockKind
from chiasm_worker.request import FinishReason, Request
from chiasm_worker.sched.batch import ScheduledBatch
from chiasm_worker.sched.scheduler import Scheduler
from chiasm_worker.tiers.exchange import TierExchange
from chiasm_worker.tiers.link import Fetched, TierLink
from chiasm_worker.tiers.wanted import Wanted
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.worker.sched.conftest import compute, request, scheduler
from tests.worker.tiers import records
from tests.worker.tiers.records import NAMESPACE, PlainMemory, staging

Lie = Callable[[bytes], bytearray]


def payload_of(key: bytes) -> bytes:
    """What an engine would compute for a key."""
    return hashlib.sha512(key).digest() * 2


def honest(key: bytes) -> bytearray:
    return records.record(key, payload_of(key))


def of_another_block(key: bytes) -> bytearray:
    return honest(hashlib.sha256(key).digest())


def of_other_readers(key: bytes) -> bytearray:
    return records.record(key, payload_of(key), scope=b"o" * 16)


def torn(key: bytes) -> bytearray:
    half = honest(key)
    half[128 + 64 : 256] = payload_of(b"another")[64:]
    return half


LIES: list[Lie] = [of_another_block, of_other_readers, torn, lambda _: bytearray(320)]


class World:
    """A scheduler, its pool and tiers that have whatever is asked for."""

    def __init__(self, sched: Scheduler, folder: Path) -> None:
        self.sched = sched
        self.pool: BlockPool = sched._pool
        self.media: MediaCache = sched._media_cache
        self.memory = PlainMemory(self.pool.num_blocks)
        self.link = TierLink()
        self.link.engine_gen = NAMESPACE.engine_gen
        self.exchange = TierExchange(self.pool, self.media, self.memory, NAMESPACE, self.link)
        self.staging = staging(folder / "slots", num_read=256, num_write=1)

    def wanted(self, new: Request) -> Wanted:
        return self.exchange.wanted(new, (len(new.token_ids) - 1) // new.table.block_size)

    def fetched(
        self, wanted: Wanted, said: Callable[[int], Lie | None], engine_gen: int = 3
    ) -> Fetched:
        """An answer in which record number i is what `said` makes of it, or is not there."""
        keys = [content.key for content in wanted.chain]
        keys += [content.key for entry in wanted.entries for content in entry.contents]
        found = {}
        for number, key in enumerate(keys):
            lie = said(number)
            found[key] = Found(ABSENT) if lie is None else Found(USE, Tier.HOST, number)
            if lie is not None:
                self.staging.record(number)[:] = lie(key)
        return Fetched(engine_gen, self.staging, found)

    def restore(self, new: Request, said: Callable[[int], Lie | None]) -> Wanted:
        wanted = self.wanted(new)
        self.exchange.restore(new, wanted, self.fetched(wanted, said))
        return wanted

    def write_encodes(self, batch: ScheduledBatch) -> None:
        """What the encoder does in a step."""
        for job in batch.encodes:
            contents = self.media.contents(job.request.scope.root, job.handle.item)
            for block_id, content in zip(job.handle.block_ids, contents, strict=True):
                self.memory.blocks[block_id][:] = payload_of(content.key)

    def write_chunks(self, batch: ScheduledBatch) -> None:
        """What the decoder did, block by block as they become full."""
        for chunk in batch.chunks:
            table = chunk.request.table
            for index in range(table.num_committed):
                key = chunk.request.chain.content(index, chunk.request.token_ids).key
                self.memory.blocks[table.block_ids[index]][:] = payload_of(key)

    def check(self) -> None:
        self.sched.check()
        for key, block_id in self.pool._by_key.items():
            assert self.memory.blocks[block_id] == payload_of(key), "a stale block is findable"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(scheduler(32), tmp_path)


def test_a_whole_prefix_and_a_picture_come_from_the_tiers(world: World):
    new = request("r", 21, 2, ((3, 9, 1),))
    wanted = world.restore(new, lambda _: honest)
    assert len(wanted.chain) == 5
    assert (len(wanted.entries), wanted.entries[0].unless_chain) == (1, 3)
    restored = world.link.counters.restored_tokens
    assert restored == {
        BlockKind.MEDIA_KV: 12, BlockKind.TEXT_KV: 8, BlockKind.ENCODER_OUTPUT: 9,
    }  # fmt: skip
    world.check()
    assert (world.pool.num_used, world.pool.num_cached) == (0, 8)
    world.sched.add(new)
    batch = compute(world.sched)
    assert (new.num_cached_tokens, batch.encodes) == (20, [])


def test_a_chain_is_taken_up_to_its_first_gap(world: World):
    new = request("r", 21)
    world.restore(new, lambda i: None if i == 2 else honest)
    assert world.pool.num_cached == 2
    world.check()


@pytest.mark.parametrize("lie", LIES)
def test_a_chain_ends_before_a_lie(world: World, lie: Lie):
    new = request("r", 21)
    world.restore(new, lambda i: lie if i == 2 else honest)
    assert (world.pool.num_cached, world.pool.num_used) == (2, 0)
    world.check()


@pytest.mark.parametrize("lie", [*LIES, None])
def test_an_entry_is_taken_whole_or_not(world: World, lie: Lie | None):
    new = request("r", 12, 2, ((0, 11, 1),))
    world.restore(new, lambda i: lie if i == 4 else honest)  # 2 of the chain, 3 of the picture
    assert world.pool.num_findable[BlockKind.ENCODER_OUTPUT, "image"] == 0
    assert world.pool.num_cached == 2
    world.check()


def test_what_the_pool_holds_is_neither_asked_for_nor_taken_again(world: World):
    first = request("a", 13)
    world.sched.add(first)
    world.write_chunks(compute(world.sched))
    new = request("b", 21)
    wanted = world.restore(new, lambda _: honest)
    assert len(wanted.chain) == 2
    assert world.link.counters.restored_tokens.total() == 8
    world.sched.add(new)
    compute(world.sched)
    assert new.num_cached_tokens == 20
    world.sched.check()


def test_what_another_request_computed_meanwhile_stays(world: World):
    first, new = request("a", 13), request("b", 21)
    wanted = world.wanted(new)
    world.sched.add(first)
    world.write_chunks(compute(world.sched))
    before = dict(world.pool._by_key)
    world.exchange.restore(new, wanted, world.fetched(wanted, lambda _: honest))
    assert before.items() <= world.pool._by_key.items()
    assert len(world.pool._by_key) == 5
    world.check()


def test_what_the_pool_gave_up_meanwhile_ends_the_chain(world: World):
    first, new = request("a", 13), request("b", 21)
    world.sched.add(first)
    world.write_chunks(compute(world.sched))
    wanted = world.wanted(new)
    world.sched.finish(first, FinishReason.ABORT)
    world.pool.uncommit([world.pool._by_key[wanted.chain[0].parent_key]])
    world.exchange.restore(new, wanted, world.fetched(wanted, lambda _: honest))
    assert world.link.counters.restored_tokens.total() == 0
    world.check()


@pytest.mark.parametrize(("of_fetch", "of_engine"), [(2, 3), (3, 4)])
def test_nothing_crosses_a_generation(world: World, of_fetch: int, of_engine: int):
    """Asked before the fence or after it: what was found is not even looked at."""
    new = request("r", 21)
    wanted = world.wanted(new)
    fetched = world.fetched(wanted, lambda _: honest, of_fetch)
    world.link.engine_gen = of_engine
    world.exchange.restore(new, wanted, fetched)
    assert world.pool.num_free == 32
    assert [(v.detail, n) for v, n in world.link.counters.taken.items()] == [("generation", 5)]


def test_a_full_pool_takes_what_fits_and_evicts_nothing_of_the_same_chain(tmp_path: Path):
    world = World(scheduler(6), tmp_path)
    held = world.pool.allocate(3)
    assert held is not None
    new = request("r", 21)
    world.restore(new, lambda _: honest)
    assert world.pool.num_cached == 3
    world.pool.release(held)
    world.sched.add(new)
    compute(world.sched)
    assert new.num_cached_tokens == 12


def test_what_waits_for_its_request_outlives_what_was_there_before(tmp_path: Path):
    """Restored blocks have the credit of what was just used: older cached ones go first."""
    world = World(scheduler(12), tmp_path)
    older = request("old", 17, first=500)
    world.sched.add(older)
    compute(world.sched)
    world.sched.finish(older, FinishReason.ABORT)
    new = request("new", 17)
    world.restore(new, lambda _: honest)
    other = request("other", 28, 1, first=900)
    world.sched.add(other)
    compute(world.sched)
    assert world.pool.num_evictions[BlockKind.TEXT_KV] > 0
    world.sched.add(new)
    while not new.num_output_tokens:
        compute(world.sched)
    assert new.num_cached_tokens == 16


SAID = st.lists(st.sampled_from([honest, honest, honest, honest, None, *LIES]), min_size=24)


class TierMachine(RuleBasedStateMachine):
    """Arrivals with and without help from tiers, steps, failing steps, aborts; a small pool."""

    @initialize(num_blocks=st.integers(8, 24), budget=st.integers(4, 30), seqs=st.integers(1, 4))
    def start(self, num_blocks: int, budget: int, seqs: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.world = World(scheduler(num_blocks, budget, seqs), Path(self.folder.name))
        self.alive: list[Request] = []
        self.asked: list[tuple[Request, Wanted]] = []
        self.num_arrived = 0

    @rule(
        num_prompt=st.integers(2, 30),
        place=st.integers(0, 3),
        length=st.sampled_from([0, 0, 3, 9]),
        first=st.sampled_from([0, 0, 100]),
    )
    def ask(self, num_prompt: int, place: int, length: int, first: int) -> None:
        pictures = ((place, length, 1),) if 0 < place + length < num_prompt and length else ()
        new = request(f"r{self.num_arrived}", num_prompt, 3, pictures, first)
        self.num_arrived += 1
        if self.world.sched.fits(new):
            self.asked.append((new, self.world.wanted(new)))

    @precondition(lambda self: self.asked)
    @rule(said=SAID, queued=st.booleans())
    def arrive(self, said: list[Lie | None], queued: bool) -> None:
        """What was asked for comes, perhaps long after; some clients have gone meanwhile."""
        new, wanted = self.asked.pop(0)
        fetched = self.world.fetched(wanted, lambda i: said[i % len(said)])
        self.world.exchange.restore(new, wanted, fetched)
        if queued:
            self.world.sched.add(new)
            self.alive.append(new)

    @precondition(lambda self: self.alive)
    @rule()
    def step(self) -> None:
        batch = self.world.sched.schedule()
        self.world.write_encodes(batch)
        sched, tables = self.world.sched, self.world
        sched.update(batch, {c.request.request_id: 7 for c in batch.chunks if c.samples})
        tables.write_chunks(batch)
        for chunk in batch.chunks:
            if chunk.request.num_output_tokens >= chunk.request.params.max_tokens:
                sched.finish(chunk.request, FinishReason.LENGTH)
        self.alive = [r for r in self.alive if r.finish_reason is None]

    @precondition(lambda self: self.alive)
    @rule()
    def failing_step(self) -> None:
        batch = self.world.sched.schedule()
        self.world.sched.abandon(batch)
        for chunk in batch.chunks:
            self.world.sched.finish(chunk.request, FinishReason.ABORT)
        self.alive = [r for r in self.alive if r.finish_reason is None]

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        victim = self.alive.pop(data.draw(st.integers(0, len(self.alive) - 1)))
        self.world.sched.finish(victim, FinishReason.ABORT)

    @invariant()
    def books_agree_and_nothing_stale_is_findable(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            while self.alive:
                self.step()
            assert self.world.pool.num_used == 0
            self.folder.cleanup()


TestTierMachine = TierMachine.TestCase
TestTierMachine.settings = settings(max_examples=50, stateful_step_count=40)
