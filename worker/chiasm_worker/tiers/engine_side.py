"""What the tiers meet of one engine generation."""

from __future__ import annotations

from dataclasses import dataclass

from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.media_cache import MediaCache
from chiasm_worker.tiers.gate import PayloadMemory
from chiasm_worker.tiers.link import Namespace, TierLink


@dataclass(frozen=True, slots=True)
class EngineSide:
    """Where blocks lie, what they mean, and the way to the tiers. For the engine's thread.

    Attributes:
        memory: the bytes of the pool's blocks.
        namespace: what the blocks of this generation are.
    """

    pool: BlockPool
    media_cache: MediaCache
    memory: PayloadMemory
    namespace: Namespace
    link: TierLink
