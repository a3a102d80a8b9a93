"""A tier that cannot be opened is tried again, and says so until it can be."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract.block_guard import USE
from chiasm_contract.block_wire import Tier
from chiasm_sidecar.kv import assembly

from tests.sidecar.conftest import until
from tests.sidecar.kv.conftest import Service, StartService, key, record
from tests.sidecar.kv.peers.replica import SECRET


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "_FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(assembly, "_MAX_PAUSE_SECONDS", 0.05)


async def becomes(service: Service, *faults: str) -> None:
    async def told() -> bool:
        return [each for each in service.lacking if each not in faults] == [] and len(
            service.lacking
        ) == len(faults)

    await until(told)


async def test_a_disk_that_another_process_used_is_used_when_it_is_free(
    start_service: StartService, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "blocks"
    folder.mkdir()
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    disk: dict[str, Any] = {"path": folder, "max_bytes": 2**20}
    service = await start_service(host_bytes=0, disk=disk)

    async def lacking() -> bool:
        return len(service.lacking) == 1

    await until(lacking)
    worker = await service.worker()
    await worker.store(record(0))
    assert [each.tier for each in await worker.chain(key(0))] == [Tier.NONE]
    os.close(lock)
    await becomes(service)

    async def kept() -> bool:
        await worker.store(record(0))
        found = await worker.chain(key(0))
        worker.release(found)
        return [(each.verdict, each.tier) for each in found] == [(USE, Tier.DISK)]

    await until(kept)
    lines = [each.message for each in caplog.records]
    assert lines.count("a tier cannot be used") == 1, "not once for each attempt"


async def test_tiers_that_cannot_be_opened_are_told_together(
    start_service: StartService, tmp_path: Path
) -> None:
    folder = tmp_path / "blocks"
    folder.mkdir()
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    peers = {"hosts": ["127.0.0.9"], "listen_host": "127.0.0.9", "port": 19210,
             "secret_path": tmp_path / "secret"}  # fmt: skip
    disk: dict[str, Any] = {"path": folder, "max_bytes": 2**20}
    service = await start_service(disk=disk, peers=peers)

    async def both() -> bool:
        return len(service.lacking) == 2

    await until(both)
    for length in range(1, 6):  # each time in other words, so that all of it is told anew
        (tmp_path / "secret").write_bytes(b"x" * length)

        async def told(words: str = f"has {length} bytes") -> bool:
            return any(words in each for each in service.lacking)

        await until(told)
        assert len(service.lacking) == 2, service.lacking
    os.close(lock)


async def test_peers_whose_secret_comes_later_share_then(
    start_service: StartService, tmp_path: Path
) -> None:
    peers = {"hosts": ["127.0.0.9"], "listen_host": "127.0.0.9", "port": 19200,
             "secret_path": tmp_path / "secret"}  # fmt: skip
    service = await start_service(peers=peers)
    await becomes(service, "peers: secret_path cannot be read, errno 2")
    (tmp_path / "secret").write_bytes(b"short")
    await becomes(
        service,
        "peers: the secret has 5 bytes; give all replicas the same 32 or more random ones.",
    )
    (tmp_path / "secret").write_bytes(SECRET)
    await becomes(service)
    assert service.value("chiasm_kv_peers_fenced") == 1
