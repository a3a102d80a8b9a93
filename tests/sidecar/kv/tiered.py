"""A service with several tiers: their settings, where their records lie, and what to wait for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from chiasm_contract.block_record import RecordKind
from chiasm_sidecar.kv.namespaces import State

from tests.sidecar.conftest import until
from tests.sidecar.kv.conftest import NAMESPACE, Service, TestWorker, key, record
from tests.sidecar.kv.valkeys import PASSWORD, USER


def disk(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    return {"path": tmp_path / "disk", "max_bytes": 2**22, **changes}


def valkey(tmp_path: Path, port: int, **changes: Any) -> dict[str, Any]:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    login = {"username": USER, "password_path": password}
    return {"host": "127.0.0.1", "port": port, "timeout_seconds": 10, **login, **changes}


def both(tmp_path: Path, port: int) -> dict[str, Any]:
    return {"disk": disk(tmp_path), "valkey": valkey(tmp_path, port)}


def retiring(tmp_path: Path, *prefixes: str) -> dict[str, Any]:
    """Settings with a list of retired namespaces, written now."""
    path = tmp_path / "retired"
    path.write_text("".join(f"{prefix}\n" for prefix in prefixes))
    return {"retired_path": path}


def place(tmp_path: Path, number: int) -> Path:
    return tmp_path / "disk" / NAMESPACE.name / key(number).hex()[:2] / key(number).hex()


def name(number: int) -> str:
    return f"chiasm:kv:{NAMESPACE.name}:{key(number).hex()}"


def stored(service: Service, tier: str, count: int) -> Callable[[], Awaitable[bool]]:
    """Whether so many records have got to a tier."""

    async def enough() -> bool:
        kinds = [kind.name.lower() for kind in RecordKind]
        name = "chiasm_kv_blocks_stored_total"
        return sum(service.value(name, tier=tier, kind=kind) for kind in kinds) >= count

    return enough


def swept(service: Service) -> Callable[[], Awaitable[bool]]:
    """Whether nothing is left of what is retired."""

    async def nothing() -> bool:
        return State.RETIRED not in service.store.registry.ends().values()

    return nothing


def opened(service: Service) -> Callable[[], Awaitable[bool]]:
    """Whether the disk tier has read its folder."""

    async def ready() -> bool:
        return all(getattr(level.tier, "_ready", True) for level in service.store.levels)

    return ready


async def filled(service: Service, count: int, *tiers: str) -> TestWorker:
    """A worker whose first records have got to these tiers."""
    await until(opened(service))
    worker = await service.worker()
    await worker.store(*map(record, range(count)))
    for tier in tiers:
        await until(stored(service, tier, count))
    return worker
