"""Under load: running answers go on, pictures come in turns, and every request ends."""

from __future__ import annotations

from chiasm_worker.kvcache.rebuild_cost import BlockKind
from chiasm_worker.request import FinishReason, Request
from chiasm_worker.sched.batch import ScheduledBatch
from chiasm_worker.sched.policy import PLACES_PER_PRIORITY
from chiasm_worker.sched.scheduler import Scheduler
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.worker.sched.conftest import compute, record, request, scheduler, shape


def num_encoder_tokens(batch: ScheduledBatch) -> int:
    return sum(job.handle.item.num_encoder_tokens for job in batch.encodes)


def test_a_prompt_that_came_first_does_not_stop_those_that_decode():
    sched = scheduler(32, budget=6)
    sched.add(request("long", 30, max_tokens=2))
    compute(sched)
    sched.add(request("short", 2, max_tokens=9, first=50))
    while "short" not in [r.request_id for r in sched._running if r.is_decoding]:
        compute(sched)
    sched.add(request("next", 30, max_tokens=2, first=90))
    compute(sched)
    for _ in range(3):
        names = [name for name, _, _, samples in shape(compute(sched)) if samples]
        assert "short" in names


def test_a_burst_of_pictures_stalls_no_running_answer():
    """Counted in steps: each brings every running answer a token and encodes a bounded amount."""
    sched = scheduler(400, budget=64, seqs=32, encoder_budget=16)
    answers = [request(f"a{i}", 5, max_tokens=60, first=100 * i) for i in range(4)]
    for each in answers:
        sched.add(each)
    compute(sched)
    for i in range(20):
        sched.add(request(f"p{i}", 14, 1, ((2, 10, i),), first=1000 + 20 * i))
    num_encoded, num_steps = 0, 0
    while num_encoded < 20:
        before = [each.num_output_tokens for each in answers]
        batch = compute(sched)
        assert [each.num_output_tokens for each in answers] == [count + 1 for count in before]
        assert num_encoder_tokens(batch) <= 16
        num_encoded += len(batch.encodes)
        num_steps += 1
    assert num_steps == 20  # one of 10 tokens a step: two exceed 16


def test_without_a_budget_the_same_burst_is_encoded_at_once():
    sched = scheduler(400, budget=400, seqs=32)
    for i in range(20):
        sched.add(request(f"p{i}", 14, 1, ((2, 10, i),), first=1000 + 20 * i))
    assert len(compute(sched).encodes) == 20


def test_a_picture_larger_than_the_budget_has_a_step_to_itself():
    sched = scheduler(64, encoder_budget=8)
    sched.add(request("small", 8, 1, ((1, 5, 1),)))
    sched.add(request("large", 14, 1, ((1, 12, 2),), first=50))
    sched.add(request("other", 8, 1, ((1, 3, 3),), first=90))
    encoded = [[job.request.request_id for job in compute(sched).encodes] for _ in range(3)]
    assert encoded == [["small", "other"], ["large"], []]


def test_a_seen_picture_needs_none_of_the_encoders_budget():
    sched = scheduler(64, encoder_budget=8)
    sched.add(request("first", 8, 1, ((1, 5, 1),)))
    compute(sched)
    sched.add(request("new", 9, 1, ((1, 7, 2),), first=50))
    sched.add(request("again", 8, 1, ((1, 5, 1),), first=90))
    batch = compute(sched)
    assert [job.request.request_id for job in batch.encodes] == ["new"]
    assert [chunk.request.request_id for chunk in batch.chunks] == ["new", "again"]


def test_a_chunk_ends_before_the_picture_that_has_to_wait():
    sched = scheduler(64, encoder_budget=8)
    sched.add(request("a", 20, 1, ((2, 6, 1), (10, 6, 2))))
    assert shape(compute(sched)) == [("a", 0, 10, False)]
    assert shape(compute(sched)) == [("a", 10, 10, True)]


def test_a_lower_priority_goes_first_and_gives_way_last():
    sched = scheduler(64, seqs=1)
    sched.add(request("running", 4, max_tokens=1))
    for name, priority in (("later", 1), ("usual", 0), ("soon", -1)):
        sched.add(request(name, 4, 1, first=ord(name[0]), priority=priority))
    order = [shape(compute(sched))[0][0] for _ in range(4)]
    assert order == ["soon", "running", "usual", "later"]

    sched = scheduler(5)
    urgent = request("urgent", 7, 3, first=50, priority=-1)
    usual = request("usual", 8, 8)
    sched.add(usual)
    compute(sched)
    sched.add(urgent)
    while not urgent.finish_reason:
        compute(sched)
    assert (usual.num_preemptions, urgent.num_preemptions) == (1, 0)


def test_a_request_beside_another_goes_before_those_that_came_meanwhile():
    sched = scheduler(64, seqs=1)
    first = request("first", 4, max_tokens=1)
    sched.add(first)
    sched.add(request("next", 4, 1, first=50))
    compute(sched)
    sched.add(request("first, again", 4, 1), beside=first)
    assert [shape(compute(sched))[0][0] for _ in range(2)] == ["first, again", "next"]


def test_urgent_requests_without_end_do_not_starve_a_usual_one():
    sched = scheduler(16, seqs=1)
    waiting = request("usual", 4, max_tokens=1)
    sched.add(waiting)
    num_steps = 0
    while not waiting.finish_reason:
        sched.add(request(f"u{num_steps}", 4, 1, first=10 * num_steps, priority=-2))
        compute(sched)
        num_steps += 1
    assert num_steps == 2 * PLACES_PER_PRIORITY


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, int, tuple[tuple[int, int, int], ...], int, int]:
    """Prompt length, max_tokens, pictures, first token and priority."""
    pictures, at = [], draw(st.integers(0, 3))
    for _ in range(draw(st.sampled_from((0, 0, 1, 2)))):
        length = draw(st.integers(1, 9))
        pictures.append((at, length, draw(st.integers(0, 3))))
        at += length + draw(st.integers(0, 4))
    return (
        at + draw(st.integers(1, 12)),
        draw(st.integers(1, 8)),
        tuple(pictures),
        draw(st.sampled_from((0, 0, 100, 200))),
        draw(st.sampled_from((0, 0, 0, -1, 1, 100))),
    )


class LoadMachine(RuleBasedStateMachine):
    """Arrivals, aborts and failing steps in any order; preemptions follow from the small pool."""

    @initialize(
        num_blocks=st.integers(8, 24),
        budget=st.integers(1, 30),
        seqs=st.integers(1, 5),
        caching=st.booleans(),
        encoder_budget=st.integers(1, 20),
    )
    def start(
        self, num_blocks: int, budget: int, seqs: int, caching: bool, encoder_budget: int
    ) -> None:
        self.sched = scheduler(num_blocks, budget, seqs, caching, encoder_budget)
        self.alive: list[Request] = []
        self.num_arrived = 0
        # (block, generation) of every encoder output that a step really wrote.
        self.written: set[tuple[int, int]] = set()

    @rule(shape=requests())
    def arrive(self, shape: tuple[int, int, tuple[tuple[int, int, int], ...], int, int]) -> None:
        new = request(f"r{self.num_arrived}", *shape)
        self.num_arrived += 1
        if self.sched.fits(new):
            self.sched.add(new)
            self.alive.append(new)

    @precondition(lambda self: self.alive)
    @rule()
    def step(self) -> None:
        decoding = [r for r in self.alive if r.is_decoding]
        before = [(r, r.num_output_tokens, r.num_preemptions) for r in decoding]
        batch = self.sched.schedule()
        for job in batch.encodes:
            self.written |= set(zip(job.handle.block_ids, job.handle.slot_gens, strict=True))
        for chunk in batch.chunks:
            needed = chunk.request.spans_in(chunk.start, chunk.end)
            assert set(needed) <= set(chunk.request.media)
        record(self.sched, batch)
        self.alive = [r for r in self.alive if r.finish_reason is None]
        limits = self.sched._limits
        assert 0 < batch.num_tokens <= limits.max_num_batched_tokens
        encoded = [job.handle.item.num_encoder_tokens for job in batch.encodes]
        assert sum(encoded) <= limits.max_num_encoder_tokens or len(encoded) == 1
        assert len({job.handle.block_ids for job in batch.encodes}) == len(batch.encodes)
        if len(decoding) <= limits.max_num_batched_tokens:
            for each, num_tokens, num_preemptions in before:
                if each.num_preemptions == num_preemptions:
                    assert each.num_output_tokens == num_tokens + 1

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def failing_step(self, data: st.DataObject) -> None:
        """Some of its requests are to blame and end; the others go on as if it had not been."""
        batch = self.sched.schedule()
        before = [(r, r.num_computed_tokens) for r in self.alive]
        self.sched.abandon(batch)
        self.sched.check()
        for each, num_computed in before:
            assert each.num_computed_tokens in (0, num_computed)
        involved = [chunk.request for chunk in batch.chunks]
        for blamed in data.draw(st.lists(st.sampled_from(involved), unique=True)):
            self.sched.finish(blamed, FinishReason.ABORT)
        self.alive = [r for r in self.alive if r.finish_reason is None]

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        victim = self.alive.pop(data.draw(st.integers(0, len(self.alive) - 1)))
        self.sched.finish(victim, FinishReason.ABORT)

    @invariant()
    def every_hold_is_in_one_requests_books(self) -> None:
        if hasattr(self, "sched"):
            self.sched.check()

    @invariant()
    def every_output_that_is_held_or_found_was_written(self) -> None:
        if hasattr(self, "sched"):
            pool = self.sched._pool
            held = [handle for each in self.alive for handle in each.media.values()]
            for handle in held:
                assert set(zip(handle.block_ids, handle.slot_gens, strict=True)) <= self.written
            for block_id in pool._by_key.values():
                if pool._blocks[block_id].rebuild.kind is BlockKind.ENCODER_OUTPUT:
                    assert (block_id, pool.slot_gen(block_id)) in self.written

    def teardown(self) -> None:
        """Without new arrivals every request ends, within the steps that its tokens can need."""
        if not hasattr(self, "sched"):
            return
        bound = 4 * (len(self.alive) + 1) ** 2 * 60
        while self.alive and bound:
            self.step()
            bound -= 1
        assert not self.alive
        self.sched.check()
        assert self.sched._pool.num_used == 0


TestLoadMachine = LoadMachine.TestCase
TestLoadMachine.settings = settings(max_examples=60, stateful_step_count=40)


@given(st.lists(requests(), min_size=8, max_size=20), st.integers(9, 16))
@settings(max_examples=30)
def test_every_request_ends_while_others_keep_coming(
    shapes: list[tuple[int, int, tuple[tuple[int, int, int], ...], int, int]], num_blocks: int
):
    sched = scheduler(num_blocks, budget=9, seqs=3, encoder_budget=8)
    watched = request("watched", 6, 3, ((1, 3, 9),), first=300)
    sched.add(watched)
    num_steps = 0
    while watched.finish_reason is None:
        shape_of_next = shapes[num_steps % len(shapes)]
        new = request(f"r{num_steps}", *shape_of_next[:4], priority=-1)
        if sched.fits(new) and sched.num_waiting < 10:
            sched.add(new)
        compute(sched)
        num_steps += 1
        # Everything that may overtake it (64 places), each with all of its tokens, one at a time.
        assert num_steps < 64 * 60


def admitted_blocks(sched: Scheduler) -> int:
    return sum(len(r.table.block_ids) for r in sched._running)


def test_two_equal_prompts_at_once_end_up_with_one_copy():
    sched = scheduler(16)
    a, b = request("a", 9), request("b", 9)
    sched.add(a)
    sched.add(b)
    compute(sched)
    assert a.table.block_ids[:2] == b.table.block_ids[:2]
    assert a.table.block_ids[2] != b.table.block_ids[2]
    assert (admitted_blocks(sched), sched._pool.num_used) == (6, 4)
    sched.check()
