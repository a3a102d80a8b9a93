"""A replica in another process, and a service in this one that may read its memory."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from chiasm_sidecar.kv.peers.asking import Peer
from chiasm_sidecar.kv.peers.nixl.agent import INSTALL
from chiasm_sidecar.kv.peers.tier import PeerTier

from tests.sidecar.conftest import until
from tests.sidecar.kv.conftest import Service, StartService
from tests.sidecar.kv.peers.replica import Replica, settings

OWN = "127.0.0.9"


@dataclass
class Asker:
    """A service with peers, and what tests look at."""

    service: Service

    @property
    def tier(self) -> PeerTier:
        (tier,) = [
            each.tier for each in self.service.store.levels if isinstance(each.tier, PeerTier)
        ]
        return tier

    @property
    def peer(self) -> Peer:
        (peer,) = self.tier._peers.values()
        return peer

    @property
    def num_free_berths(self) -> int:
        return self.tier._landing._free.qsize()

    def value(self, name: str, **labels: str) -> float:
        return self.service.value(name, **labels)


def require_nixl() -> None:
    pytest.importorskip("nixl_cu12", reason=f"reading other replicas' memory needs: {INSTALL}")


@pytest.fixture(params=["stream", "nixl"])
def transport(request: pytest.FixtureRequest) -> str:
    """The transport of every replica in the test."""
    name = str(request.param)
    if name == "nixl":
        require_nixl()
    return name


StartAsker = Callable[..., Awaitable[Asker]]
StartReplica = Callable[..., Replica]


@pytest.fixture
def start_replica(tmp_path: Path, transport: str) -> Iterator[StartReplica]:
    started: list[Replica] = []
    numbers = itertools.count()

    def start(address: str = "127.0.0.2", transport: str = transport) -> Replica:
        started.append(Replica(tmp_path / f"replica{next(numbers)}", address, transport))
        return started[-1]

    yield start
    for replica in started:
        replica.kill()


@pytest.fixture
def start_asker(start_service: StartService, tmp_path: Path, transport: str) -> StartAsker:
    async def start(*addresses: str, transport: str = transport, **changes: Any) -> Asker:
        peers = settings(tmp_path, OWN, addresses, transport, **changes)
        asker = Asker(await start_service(peers=peers, fetch_timeout_seconds=20))

        async def opened() -> bool:
            return bool(asker.tier._peers)

        await until(opened)
        return asker

    return start
