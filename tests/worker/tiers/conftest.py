"""An engine's service with a way to a block service, asked as a request asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract.config import EngineLimits
from chiasm_worker.engine.engine import Engine
from chiasm_worker.engine.service import EngineService
from chiasm_worker.equality import ROOT, Conversation, Prepared
from chiasm_worker.request import SamplingParams
from chiasm_worker.tiers.client import Backoff, BlockClient
from chiasm_worker.tiers.link import Namespace, TierCounters
from chiasm_worker.tiers.wanted import Patience
from chiasm_worker.tiers.worth import OfferPolicy

from tests.worker.server.running_worker import until
from tests.worker.tiers.block_service import Service

EVERYTHING = OfferPolicy(long_chain_tokens=1, bytes_per_second=1e18, max_step_bytes=2**40)
"""Offers every block at once."""


@dataclass
class Rig:
    """One worker's engine and its way to a block service."""

    prepared: Prepared
    engine: Engine
    service: EngineService
    client: BlockClient

    @property
    def counters(self) -> TierCounters:
        return self.engine.tier_link.counters

    async def ask(self, conversation: Conversation, max_tokens: int = 8) -> list[int]:
        """The greedy tokens of one answer."""
        prompt, inputs = self.prepared.prompt(conversation)
        tokens: list[int] = []
        async for batch in self.service.generate(
            "r", prompt, SamplingParams(max_tokens=max_tokens, ignore_eos=True), inputs
        ):
            assert not any(progress.failed for progress in batch)
            tokens += [p.token_id for p in batch if p.token_id is not None]
        return tokens

    async def stored(self, service: Service, num_records: int) -> None:
        """Wait until the service keeps so many records."""
        await until(lambda: len(service.records) >= num_records)


@asynccontextmanager
async def rig(
    prepared: Prepared,
    socket_path: Path,
    policy: OfferPolicy = EVERYTHING,
    patience: Patience | None = None,
    wait: bool = True,
    **limits: Any,
) -> AsyncIterator[Rig]:
    """A running engine; its pool has kept its books when it ends."""
    given = {"kv_cache_bytes": 2**24, "max_model_len": 1024, **limits}
    cold = prepared.engine(**given)
    namespace = Namespace(0, "a" * 64, "b" * 64, {"compute.x": 1}, cold.spec.payload_bytes)
    engine = Engine(prepared.model, EngineLimits(**given), ROOT, namespace, policy)
    assert engine.tiers is not None
    client = BlockClient(
        socket_path, "me", engine.tier_link, engine.tiers.not_kept, Backoff(0.01, 0.05)
    )
    service = EngineService(engine, 1, client, patience or Patience(30.0, 30.0))
    service.start()
    try:
        if wait:
            await until(lambda: client.is_connected)
        yield Rig(prepared, engine, service, client)
    finally:
        await service.stop()
        engine.scheduler.check()
        assert engine.pool.num_used == 0


@pytest.fixture
def qwen(prepared: Callable[[str], Prepared]) -> Prepared:
    return prepared("qwen3-grouped")
