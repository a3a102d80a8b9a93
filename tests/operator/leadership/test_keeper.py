"""One leader at a time, by clocks that are turned by hand."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from chiasm_operator.leadership.fence import FARTHEST, Deposed, Fence, OutOfReach
from chiasm_operator.leadership.keeper import LeaseKeeper
from chiasm_operator.leadership.lease import Lease, may_take


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Store:
    """One Lease with versions, as the API server keeps it."""

    stored: dict[str, Any] | None = None
    fails: bool = False
    writes: list[str] = field(default_factory=list)
    versions: Any = field(default_factory=lambda: itertools.count(1))

    def _put(self, spec: Any) -> dict[str, Any]:
        if spec["leaseTransitions"] >= 2**31:
            raise ValueError("spec.leaseTransitions: the API server holds 32 bits")
        self.stored = {
            "metadata": {"resourceVersion": str(next(self.versions))},
            "spec": dict(spec),
        }
        self.writes.append(spec["holderIdentity"])
        return self.stored

    def _answer(self) -> None:
        if self.fails:
            raise ConnectionError("nobody answers")

    async def read(self) -> dict[str, Any] | None:
        self._answer()
        return self.stored

    async def create(self, spec: Any) -> dict[str, Any] | None:
        self._answer()
        return None if self.stored else self._put(spec)

    async def replace(self, stored: Any, spec: Any) -> dict[str, Any] | None:
        self._answer()
        same = self.stored and self.stored["metadata"] == stored["metadata"]
        return self._put(spec) if same else None


@dataclass
class Candidate:
    keeper: LeaseKeeper
    fence: Fence


def candidate(store: Store, clock: Clock, name: str) -> Candidate:
    fence = Fence(clock)
    keeper = LeaseKeeper(store, fence, name, 15, (clock, lambda: "2026-01-01T00:00:00.000000Z"))
    return Candidate(keeper, fence)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> Store:
    return Store()


async def test_the_first_leads_and_the_second_follows(store: Store, clock: Clock) -> None:
    a, b = candidate(store, clock, "a"), candidate(store, clock, "b")
    assert await a.keeper.round()
    assert not await b.keeper.round()
    assert (a.fence.check(), a.keeper.epoch, b.keeper.holder) == (1, 1, "a")
    with pytest.raises(Deposed):
        b.fence.check()


async def test_a_leader_renews_without_reading(store: Store, clock: Clock) -> None:
    a = candidate(store, clock, "a")
    await a.keeper.round()
    for _ in range(20):
        clock.now += a.keeper.pause_seconds
        assert await a.keeper.round()
    assert a.keeper.epoch == 1
    assert len(store.writes) == 21


async def test_a_silent_leader_is_replaced_and_had_stopped_before(
    store: Store, clock: Clock
) -> None:
    a, b = candidate(store, clock, "a"), candidate(store, clock, "b")
    await a.keeper.round()
    await b.keeper.round()
    clock.now = 9.9
    assert a.fence.is_open
    assert not await b.keeper.round()
    clock.now = 10.0
    assert not a.fence.is_open, "five seconds for what is under way"
    clock.now = 14.9
    assert not await b.keeper.round()
    clock.now = 15.0
    assert await b.keeper.round()
    assert b.keeper.epoch == 2
    store.fails = True
    assert not await a.keeper.round(), "it knows without asking"
    store.fails = False
    assert not await a.keeper.round()
    assert a.keeper.holder == "b"


async def test_one_that_slept_and_was_not_missed_leads_on_with_a_new_epoch(
    store: Store, clock: Clock
) -> None:
    a = candidate(store, clock, "a")
    await a.keeper.round()
    clock.now = 3600
    assert not await a.keeper.round(), "its passes have to end"
    assert await a.keeper.round()
    assert a.keeper.epoch == 2


async def test_a_next_life_in_the_same_seat_need_not_wait(store: Store, clock: Clock) -> None:
    a = candidate(store, clock, "pod-1")
    await a.keeper.round()
    again = candidate(store, clock, "pod-1")
    assert await again.keeper.round()
    assert again.keeper.epoch == 2
    assert not await a.keeper.round(), "were it still alive after all, it would notice"


async def test_what_is_given_back_is_free_at_once(store: Store, clock: Clock) -> None:
    a, b = candidate(store, clock, "a"), candidate(store, clock, "b")
    await a.keeper.round()
    await a.keeper.release()
    assert not a.fence.is_open
    assert await b.keeper.round()
    assert b.keeper.epoch == 2


async def test_an_api_server_that_is_away_ends_it_in_time(store: Store, clock: Clock) -> None:
    a = candidate(store, clock, "a")
    await a.keeper.round()
    store.fails = True
    clock.now = 6
    assert await a.keeper.round(), "the lease still holds"
    clock.now = 11
    assert not await a.keeper.round()
    assert a.keeper.stalled(stall_seconds=1) is None
    clock.now = 17
    assert a.keeper.stalled(stall_seconds=1) == "The lease was last looked at 17 s ago."
    store.fails = False
    assert await a.keeper.round()
    assert a.keeper.stalled(stall_seconds=1) is None


async def test_a_lost_lease_counts_on_from_what_the_statuses_hold(
    store: Store, clock: Clock
) -> None:
    a = candidate(store, clock, "a")
    await a.keeper.round()
    with pytest.raises(Deposed, match=r"epoch|Epoch"):
        a.fence.meet(40)
    assert await a.keeper.round()
    assert a.fence.meet(40) == 41
    with pytest.raises(Deposed):
        a.fence.meet(50)
    await a.keeper.round()
    assert a.keeper.epoch == 41, "two installations must not race each other"
    for _ in range(8):
        clock.now += 5
        await a.keeper.round()
    assert a.keeper.epoch == 51


@pytest.mark.parametrize("planted", [FARTHEST, FARTHEST + 1, 2**31 - 2, 2**31 - 1, 2**40])
async def test_an_epoch_that_somebody_planted_ends_no_leader(
    planted: int, store: Store, clock: Clock
) -> None:
    """Whoever may write one status must not stop the operator for all resources."""
    a = candidate(store, clock, "a")
    await a.keeper.round()
    with pytest.raises((Deposed, OutOfReach), match=f"status.operatorEpoch is {planted}, above"):
        a.fence.meet(planted)
    for _ in range(20):
        clock.now += 5
        assert await a.keeper.round()
        assert a.fence.is_open
    next_one = candidate(store, clock, "b")
    await next_one.keeper.round()
    clock.now += 20
    assert await next_one.keeper.round()


def test_an_epoch_out_of_reach_says_how_to_get_rid_of_it(clock: Clock) -> None:
    fence = Fence(clock)
    fence.open(epoch=1, until=10)
    with pytest.raises(OutOfReach, match="kubectl"):
        fence.meet(FARTHEST + 1)
    assert fence.highest_seen == 0


@pytest.mark.parametrize(
    ("lease", "unchanged", "expected"),
    [
        (Lease("me", 4, 15, "1"), 0, True),
        (Lease("other", 4, 15, "1"), 14.9, False),
        (Lease("other", 4, 15, "1"), 15, True),
        (Lease("other", 4, 60, "1"), 15, False),
        (Lease("", 4, 0, "1"), 0, True),
    ],
)
def test_who_may_take_a_lease(lease: Lease, unchanged: float, expected: bool) -> None:
    assert may_take(lease, "me", unchanged) is expected


@pytest.mark.parametrize("seed", range(20))
async def test_there_are_never_two_that_may_write(seed: int) -> None:
    """Four candidates that sleep, wake and lose the API server at random; epochs never repeat."""
    chance = random.Random(seed)
    store, clock = Store(), Clock()
    everyone = [candidate(store, clock, f"pod-{number}") for number in range(4)]
    leaders: dict[int, str] = {}
    for _ in range(600):
        clock.now += chance.choice((0.1, 1, 3, 3, 5, 12))
        store.fails = chance.random() < 0.2
        for one in chance.sample(everyone, chance.randint(0, 4)):
            await one.keeper.round()
            writing = [other for other in everyone if other.fence.is_open]
            assert len(writing) <= 1
            for other in writing:
                name = other.keeper.identity
                assert leaders.setdefault(other.fence.check(), name) == name
    assert len(set(leaders.values())) > 1, "the story should have had several leaders"
