"""A tier as the store uses it: a clock of the test's, a tier that does what the test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from chiasm_contract.block_guard import USE, Outcome, Verdict
from chiasm_contract.block_record import RecordKind
from chiasm_sidecar.kv.meters import Meters
from chiasm_sidecar.kv.tiers.level import Level
from chiasm_sidecar.metrics import Metrics

from tests.sidecar.conftest import until
from tests.sidecar.kv.conftest import NAMESPACE, RECORD_BYTES, header, keys, record
from tests.sidecar.kv.told import Told, fail

BUSY = Verdict(Outcome.MISS, "busy")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def new(queue_bytes: int | None = None, **changes: object) -> tuple[Told, Level, Clock, Metrics]:
    tier, clock, metrics = Told(), Clock(), Metrics("demo")
    level = Level(tier, Meters(metrics), clock, queue_bytes=queue_bytes, **changes)  # type: ignore[arg-type]
    return tier, level, clock, metrics


@contextlib.asynccontextmanager
async def writing(level: Level) -> AsyncIterator[None]:
    async def write() -> None:
        async for _ in level.writing():
            raise AssertionError("no two contents are written here")

    task = asyncio.create_task(write())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_tier_is_not_asked_after_the_deadline() -> None:
    tier, level, clock, _ = new()
    assert await level.get_many(NAMESPACE, keys(1), clock.now, 1) is None
    assert tier.num_asked == 0
    assert await level.get_many(NAMESPACE, keys(1), clock.now + 1, 1) == [None]


async def test_a_failing_tier_is_left_alone_until_its_pause_is_over() -> None:
    tier, level, clock, _ = new()
    tier.first = fail
    for _ in range(10):
        assert await level.get_many(NAMESPACE, keys(1), clock.now + 9, 1) is None
    assert tier.num_asked == 3
    clock.now += 1
    tier.first = lambda: None
    assert await level.get_many(NAMESPACE, keys(1), clock.now + 9, 1) == [None]
    assert not level.breaker.open


@pytest.mark.parametrize(("waited", "counts"), [(0.5, True), (0.4, False)])
async def test_only_a_fair_time_without_an_answer_counts(waited: float, counts: bool) -> None:
    tier, level, clock, metrics = new()
    tier.waits = asyncio.Event()

    def pass_time() -> None:
        clock.now += waited

    tier.first = pass_time
    assert await level.get_many(NAMESPACE, keys(1), clock.now + 0.001, 0.5) is None
    failures = metrics.registry.get_sample_value("chiasm_kv_tier_failures_total", {"tier": "host"})
    assert failures == counts


async def test_a_kind_that_does_not_go_there_is_not_offered() -> None:
    _, level, _, _ = new(kinds=frozenset({RecordKind.ENCODER_OUTPUT}))
    assert await level.offer(NAMESPACE, header(0), record(0)) is None
    kind = RecordKind.ENCODER_OUTPUT
    assert await level.offer(NAMESPACE, header(1, kind), record(1, kind)) == USE


async def test_a_queue_is_bounded_in_bytes_and_empties() -> None:
    tier, level, _, _ = new(queue_bytes=2 * RECORD_BYTES)
    offers = [await level.offer(NAMESPACE, header(n), record(n)) for n in range(4)]
    assert offers == [USE, USE, BUSY, BUSY]
    assert level.num_queued_bytes == 2 * RECORD_BYTES

    async def empty() -> bool:
        return level.num_queued_bytes == 0

    async with writing(level):
        await until(empty)
        assert await tier.get_many(NAMESPACE, keys(3)) == [record(0), record(1), None]
        assert await level.offer(NAMESPACE, header(2), record(2)) == USE
        await until(empty)


async def test_writes_to_a_tier_that_is_left_alone_are_dropped_not_waited_for() -> None:
    tier, level, _, metrics = new(queue_bytes=2**20)
    tier.first = fail
    for number in range(10):
        await level.offer(NAMESPACE, header(number), record(number))

    async def empty() -> bool:
        return level.num_queued_bytes == 0

    async with writing(level):
        await until(empty)
    assert tier.num_asked == 3
    labels = {"tier": "host", "reason": "failed"}
    assert metrics.registry.get_sample_value("chiasm_kv_writes_dropped_total", labels) == 10


async def test_a_bug_in_a_tier_does_not_end_the_writing(caplog: pytest.LogCaptureFixture) -> None:
    tier, level, _, _ = new(queue_bytes=2**20)

    def broken() -> None:
        tier.first = lambda: None
        raise RuntimeError("bug")

    tier.first = broken
    await level.offer(NAMESPACE, header(0), record(0))
    await level.offer(NAMESPACE, header(1), record(1))

    async def empty() -> bool:
        return level.num_queued_bytes == 0

    async with writing(level):
        await until(empty)
    assert await tier.get_many(NAMESPACE, keys(2)) == [None, record(1)]
    assert "this is a bug" in caplog.text
