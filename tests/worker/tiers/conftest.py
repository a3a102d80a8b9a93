"""An engine's service with a way to a block service, asked as a request asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from chiasm_contract.block_record import HEADER_BYTES
from chiasm_contract.config import EngineLimits
from chiasm_worker.engine.engine import Engine, cache_spec
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
    given = EngineLimits(**{"kv_cache_bytes": 2**24, "max_model_len": 1024, **limits})
    payload_bytes = cache_spec(prepared.model, given).payload_bytes
    namespace = Namespace(0, "a" * 64, "b" * 64, {"compute.x": 1}, payload_bytes)
    engine = Engine(prepared.model, given, ROOT, namespace, policy)
    assert engine.tiers is not None
    client = BlockClient(socket_path, "me", engine.tier_link, Backoff(0.01, 0.05))
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


def chain_keys(prepared: Prepared, conversation: Conversation, block_size: int = 16) -> list[bytes]:
    """The keys of a prompt's full blocks that a prefix hit may have."""
    engine = prepared.engine(block_size=block_size)
    prompt, _ = prepared.prompt(conversation)
    request = engine.make_request("k", prompt, SamplingParams(max_tokens=1))
    num_usable = (len(request.token_ids) - 1) // block_size
    return [request.chain.content(i, request.token_ids).key for i in range(num_usable)]


def num_stale(engine: Engine, honest: Mapping[bytes, bytes]) -> int:
    """Findable blocks that hold something else than what was honestly stored under their keys."""
    count = 0
    for key, block_id in engine.pool._by_key.items():
        if key in honest:
            payload = honest[key][HEADER_BYTES : HEADER_BYTES + engine.spec.payload_bytes]
            want = torch.frombuffer(bytearray(payload), dtype=torch.float32)
            seen = engine.runner._arena._payload[block_id].view(torch.float32)
            num_used = engine.spec.kv_bytes // 4
            count += not torch.allclose(seen[:num_used], want[:num_used], atol=1e-4)
    return count
