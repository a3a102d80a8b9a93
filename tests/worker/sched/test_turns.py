"""Requests of two models in one pool: each step is one model's, and all of them end."""

from __future__ import annotations

from dataclasses import replace

from chiasm_worker.request import FinishReason, Request
from chiasm_worker.sched.scheduler import Scheduler
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.worker.sched.conftest import SCOPE, compute, record, request, scheduler, shape


def of_model(engine_gen: int, new: Request) -> Request:
    new.scope = replace(SCOPE, engine_gen=engine_gen)
    return new


def test_two_models_take_turns():
    sched = scheduler(64)
    for name, engine_gen in (("old", 0), ("older", 0), ("new", 1)):
        sched.add(of_model(engine_gen, request(name, 4, 3, first=ord(name[0]))))
    steps = [[name for name, *_ in shape(compute(sched))] for _ in range(6)]
    assert steps == [["new"], ["old", "older"]] * 3


def test_a_model_alone_has_every_step():
    sched = scheduler(64)
    sched.add(of_model(3, request("new", 4, 3)))
    assert [len(compute(sched).chunks) for _ in range(3)] == [1, 1, 1]
    assert compute(sched).chunks == []


def test_one_that_waits_for_room_leaves_its_turn_to_the_other():
    sched = scheduler(5)
    old = of_model(0, request("old", 15, 5))
    sched.add(old)
    compute(sched)
    sched.add(of_model(1, request("new", 13, 2, first=500)))
    while old.finish_reason is None:
        assert [name for name, *_ in shape(compute(sched))] == ["old"]
    assert [name for name, *_ in shape(compute(sched))] == ["new"]


def test_the_one_that_came_first_gives_its_blocks_last_whatever_its_model():
    sched = scheduler(5)
    first, second = request("first", 7, 9), of_model(1, request("second", 7, 9, first=500))
    sched.add(first)
    compute(sched)
    sched.add(second)
    while sched.has_requests:
        compute(sched)
        sched.check()
    assert (first.num_preemptions, second.num_preemptions) == (0, 1)


class TwoModels(RuleBasedStateMachine):
    """Arrivals of either model, steps, failing steps, aborts; a small pool."""

    @initialize(num_blocks=st.integers(8, 20), budget=st.integers(1, 20), seqs=st.integers(1, 4))
    def start(self, num_blocks: int, budget: int, seqs: int) -> None:
        self.sched: Scheduler = scheduler(num_blocks, budget, seqs)
        self.alive: list[Request] = []
        self.num_arrived = 0

    @rule(
        engine_gen=st.integers(0, 2),
        num_prompt=st.integers(1, 20),
        picture=st.sampled_from([(), ((0, 5, 1),)]),
        priority=st.sampled_from([0, 0, 1, -1]),
    )
    def arrive(
        self, engine_gen: int, num_prompt: int, picture: tuple[tuple[int, int, int], ...],
        priority: int,
    ) -> None:  # fmt: skip
        pictures = picture if num_prompt > 6 else ()
        new = request(f"r{self.num_arrived}", num_prompt, 4, pictures, priority=priority)
        self.num_arrived += 1
        if self.sched.fits(new):
            self.sched.add(of_model(engine_gen, new))
            self.alive.append(new)

    @precondition(lambda self: self.alive)
    @rule()
    def step(self) -> None:
        batch = self.sched.schedule()
        assert len({chunk.request.scope.engine_gen for chunk in batch.chunks}) == 1
        assert {job.request.scope.engine_gen for job in batch.encodes} <= {
            batch.chunks[0].request.scope.engine_gen
        }
        record(self.sched, batch)
        self.alive = [r for r in self.alive if r.finish_reason is None]

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        victim = self.alive.pop(data.draw(st.integers(0, len(self.alive) - 1)))
        self.sched.finish(victim, FinishReason.ABORT)

    @invariant()
    def books_agree(self) -> None:
        if hasattr(self, "sched"):
            self.sched.check()

    def teardown(self) -> None:
        if not hasattr(self, "sched"):
            return
        bound = 8 * (len(self.alive) + 1) ** 2 * 60
        while self.alive and bound:
            self.step()
            bound -= 1
        assert not self.alive


TestTwoModels = TwoModels.TestCase
TestTwoModels.settings = settings(max_examples=60, stateful_step_count=40)
