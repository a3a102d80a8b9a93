"""Scheduling of passes: coalesced, never overlapping, retried, ended with the resource."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from chiasm_operator.api import Refused
from chiasm_operator.cluster import KNOWN_KINDS
from chiasm_operator.leadership.fence import Deposed
from chiasm_operator.passes import Rest
from chiasm_operator.supervisor import MAX_PASSES, Gate, Supervisor, Tempo


@dataclass
class Recorder:
    """Stands where a Pass stands and notes what is asked of it."""

    answers: dict[str, Any] = field(default_factory=dict)
    listed: list[str] = field(default_factory=list)
    passes: list[str] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    hold: asyncio.Event | None = None
    relisted: list[tuple[str, ...]] = field(default_factory=list)
    refusals: list[Exception] = field(default_factory=list)
    told: list[tuple[str, Exception]] = field(default_factory=list)

    @property
    def cluster(self) -> Recorder:
        return self

    async def close(self) -> None:
        pass

    @property
    def index(self) -> Recorder:
        return self

    async def relist(self, kinds: Any, _: Any) -> set[tuple[str, str]]:
        if self.refusals:
            raise self.refusals.pop(0)
        self.relisted.append(tuple(kind.kind for kind in kinds))
        return set()

    def keys(self, _: str) -> list[tuple[str, str]]:
        return [("n", name) for name in self.listed]

    async def tell_failure(self, _: str, name: str, error: Exception) -> None:
        self.told.append((name, error))
        raise error  # it cannot be told either

    async def run(self, _: str, name: str) -> Rest | None:
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        self.passes.append(name)
        await asyncio.sleep(0)
        if self.hold:
            await self.hold.wait()
        self.running -= 1
        answer = self.answers.get(name, True)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Rest):
            return answer
        return None if answer is None else Rest(answer)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


TEMPO = Tempo(resync_seconds=3600, unsettled_seconds=0.01, stall_seconds=60)
Make = Callable[..., tuple[Supervisor, Recorder, Clock]]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    started: list[Supervisor] = []

    def build(**more: Any) -> tuple[Supervisor, Recorder, Clock]:
        recorder, clock = Recorder(**more), Clock()
        supervisor = Supervisor(recorder, TEMPO, (), clock)  # type: ignore[arg-type]
        started.append(supervisor)
        return supervisor, recorder, clock

    yield build
    for supervisor in started:
        await supervisor.stop()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


async def test_a_start_looks_at_every_resource(make: Make) -> None:
    supervisor, recorder, _ = make(listed=["a", "b"])
    supervisor.start()
    await until(lambda: sorted(recorder.passes) == ["a", "b"])
    assert supervisor.num_resources == 2


async def test_a_burst_of_events_is_one_more_pass(make: Make) -> None:
    hold = asyncio.Event()
    supervisor, recorder, _ = make(hold=hold)
    supervisor.wake("n", "a")
    await until(lambda: recorder.running == 1)
    for _ in range(50):
        supervisor.wake("n", "a")
    hold.set()
    await until(lambda: len(recorder.passes) == 2)
    await asyncio.sleep(0.3)
    assert recorder.passes == ["a", "a"]
    assert recorder.most_running == 1


async def test_an_unsettled_resource_is_looked_at_again(make: Make) -> None:
    supervisor, recorder, _ = make(answers={"a": False})
    supervisor.wake("n", "a")
    await until(lambda: len(recorder.passes) >= 3)


def test_a_lasting_trouble_is_looked_at_less_and_less() -> None:
    tempo = Tempo(resync_seconds=30, unsettled_seconds=2, stall_seconds=60)
    supervisor = Supervisor(Recorder(), tempo, (), Clock())  # type: ignore[arg-type]
    waits = [supervisor._delay(False, 0, idle) for idle in range(100)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (2, 30)
    assert supervisor._delay(True, 0, 0) == 30
    for failures, longest in ((1, 1), (2, 2), (3, 4), (99, 30)):
        drawn = {supervisor._delay(False, failures, 0) for _ in range(20)}
        assert len(drawn) > 1, "what failed together does not come back together"
        assert longest / 2 <= min(drawn) <= max(drawn) <= longest


async def test_a_settled_one_rests_until_woken(make: Make) -> None:
    supervisor, recorder, _ = make()
    supervisor.wake("n", "a")
    await until(lambda: recorder.passes == ["a"])
    await asyncio.sleep(0.2)
    assert recorder.passes == ["a"]
    supervisor.wake("n", "a")
    await until(lambda: recorder.passes == ["a", "a"])


async def test_what_is_due_wakes_a_settled_one(make: Make) -> None:
    supervisor, recorder, _ = make(answers={"a": Rest(settled=True, wake_seconds=0.2)})
    supervisor.wake("n", "a")
    await until(lambda: len(recorder.passes) >= 3)


async def test_a_resource_that_is_gone_has_no_task(make: Make) -> None:
    supervisor, recorder, _ = make(answers={"a": None})
    supervisor.wake("n", "a")
    await until(lambda: recorder.passes == ["a"] and supervisor.num_resources == 0)
    recorder.answers["a"] = True
    supervisor.wake("n", "a")
    await until(lambda: recorder.passes == ["a", "a"])


async def test_a_failed_pass_is_done_again_and_hurts_no_other(make: Make) -> None:
    supervisor, recorder, _ = make(answers={"bad": RuntimeError("no route")})
    supervisor.wake("n", "bad")
    supervisor.wake("n", "good")
    await until(lambda: "good" in recorder.passes and recorder.passes.count("bad") >= 2)


async def test_what_fails_again_and_again_is_told(make: Make) -> None:
    error = RuntimeError("no such port")
    supervisor, recorder, _ = make(answers={"bad": error})
    supervisor.wake("n", "bad")
    await until(lambda: len(recorder.told) >= 2)
    assert len(recorder.told) < len(recorder.passes), "once may be chance"
    assert set(recorder.told) == {("bad", error)}


async def test_one_stuck_pass_does_not_hold_others_but_is_a_stall(make: Make) -> None:
    supervisor, recorder, clock = make(hold=asyncio.Event(), listed=["stuck"])
    supervisor.start()
    await until(lambda: recorder.running == 1)
    supervisor.wake("n", "other")
    await until(lambda: "other" in recorder.passes)
    assert supervisor.stalled() is None
    clock.now = 61.0
    assert supervisor.stalled() == "A pass over n/stuck has run for 61 s."


async def test_a_dead_sweep_is_a_stall(make: Make) -> None:
    supervisor, _, clock = make()
    supervisor.start()
    clock.now = TEMPO.resync_seconds + TEMPO.stall_seconds + 1
    assert supervisor.stalled() == "The resources were last listed 3661 s ago."


async def test_a_sweep_finds_what_no_event_told(make: Make) -> None:
    recorder = Recorder()
    tempo = Tempo(resync_seconds=0.05, unsettled_seconds=1, stall_seconds=60)
    supervisor = Supervisor(recorder, tempo, (), Clock())  # type: ignore[arg-type]
    supervisor.start()
    recorder.listed.append("late")
    await until(lambda: "late" in recorder.passes)
    await supervisor.stop()


@pytest.mark.parametrize(
    "passing",
    [
        Refused(429, "storage is (re)initializing"),
        Refused(503, "the server is shutting down"),
        ConnectionRefusedError("nobody listens"),
        TimeoutError(),
    ],
    ids=repr,
)
async def test_a_first_look_that_fails_for_a_moment_is_made_up_for(
    make: Make, passing: Exception
) -> None:
    supervisor, recorder, _ = make(listed=["a"], refusals=[passing, passing])
    supervisor.start()
    await until(lambda: recorder.passes == ["a"])


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_refusal_that_lasts_is_said_at_once(make: Make, status: int) -> None:
    supervisor, _, _ = make(refusals=[Refused(status, "no")])
    with pytest.raises(Refused):
        await supervisor.check()


async def test_every_kind_is_listed_first_and_then_in_turns(make: Make) -> None:
    recorder = Recorder()
    tempo = Tempo(resync_seconds=0.01, unsettled_seconds=1, stall_seconds=60)
    supervisor = Supervisor(recorder, tempo, (), Clock())  # type: ignore[arg-type]
    assert not supervisor.knows
    supervisor.start()
    await until(lambda: supervisor.knows)
    await until(lambda: len(recorder.relisted) > 2 * len(KNOWN_KINDS))
    await supervisor.stop()
    assert recorder.relisted[0] == tuple(kind.kind for kind in KNOWN_KINDS)
    each = recorder.relisted[1]
    assert all(names[:-1] == each[:-1] for names in recorder.relisted[1:])
    assert {name for names in recorder.relisted[1:] for name in names} == set(recorder.relisted[0])


async def test_only_so_many_passes_run_and_the_new_go_first(make: Make) -> None:
    hold = asyncio.Event()
    supervisor, recorder, _ = make(hold=hold)
    for number in range(MAX_PASSES):
        supervisor.wake("n", f"old-{number}")
    await until(lambda: recorder.running == MAX_PASSES)
    for number in range(MAX_PASSES):
        supervisor.wake("n", f"old-{number}")  # each has to run once more
    for number in range(3):
        supervisor.wake("n", f"new-{number}")
    await asyncio.sleep(0.05)
    assert recorder.running == recorder.most_running == MAX_PASSES
    hold.set()
    await until(lambda: len(recorder.passes) == 2 * MAX_PASSES + 3)
    assert recorder.passes[MAX_PASSES : MAX_PASSES + 3] == ["new-0", "new-1", "new-2"]
    assert recorder.most_running == MAX_PASSES


async def test_a_place_given_to_one_that_ends_is_not_lost() -> None:
    gate = Gate(1)
    await gate.enter(urgent=False)
    waiting = asyncio.create_task(gate.enter(urgent=True))
    await asyncio.sleep(0)
    gate.leave()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(5):
        await gate.enter(urgent=False)


@pytest.mark.parametrize("turns", range(8))
async def test_a_pause_ends_every_task_also_one_that_is_just_being_woken(
    make: Make, turns: int
) -> None:
    supervisor, recorder, _ = make()
    supervisor.wake("n", "a")
    await until(lambda: recorder.passes == ["a"])
    await asyncio.sleep(0.2)
    supervisor.wake("n", "a")
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await supervisor.pause()
    assert supervisor.num_resources == 0


async def test_passes_are_counted_as_they_end(make: Make) -> None:
    answers = {"gone": None, "well": True, "later": Rest(settled=False), "ill": ValueError("no")}
    supervisor, recorder, _ = make(answers=answers | {"second": Deposed("another leads")})
    for name in (*answers, "second"):
        supervisor.wake("n", name)
    await until(lambda: len(set(recorder.passes)) == 5)
    await supervisor.pause()
    counted = supervisor.counts.outcomes
    assert (counted["gone"], counted["settled"]) == (1, 1)
    assert min(counted["unsettled"], counted["failed"], counted["deposed"]) >= 1
    assert sum(counted.values()) == len(recorder.passes)
