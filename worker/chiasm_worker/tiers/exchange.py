"""The engine's side of the tiers: what comes into its pool from them, and what they are offered.

Must not know: sockets, torch, when requests run. For the engine's thread, except `wanted`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.media_cache import MediaCache
from chiasm_worker.request import Request
from chiasm_worker.tiers.engine_side import EngineSide
from chiasm_worker.tiers.gate import PayloadMemory
from chiasm_worker.tiers.link import Fetched, Namespace, Offer, TierLink
from chiasm_worker.tiers.offering import Offering
from chiasm_worker.tiers.restore import Restoring
from chiasm_worker.tiers.wanted import Wanted, wanted_blocks
from chiasm_worker.tiers.worth import OfferPolicy


class TierExchange:
    """One engine generation's exchange with the tiers."""

    def __init__(
        self,
        pool: BlockPool,
        media_cache: MediaCache,
        memory: PayloadMemory,
        namespace: Namespace,
        link: TierLink,
        policy: OfferPolicy | None = None,
    ) -> None:
        self.namespace = namespace
        self._pool = pool
        self._media_cache = media_cache
        side = EngineSide(pool, media_cache, memory, namespace, link)
        self._restoring = Restoring(side)
        self._offering = Offering(side, policy)

    @property
    def not_kept(self) -> Callable[[bytes], object]:
        """Takes the key of a block that was offered and not kept; from any thread."""
        return self._offering.not_kept.append

    def wanted(self, request: Request, num_usable: int) -> Wanted:
        """What to ask for before a request is queued; from any thread."""
        return wanted_blocks(request, self._pool, self._media_cache, num_usable)

    def restore(self, request: Request, wanted: Wanted, fetched: Fetched) -> None:
        """Take what came for a request into the pool."""
        self._offering.brought(self._restoring.restore(request, wanted, fetched))

    def begin_offers(self, requests: Sequence[Request]) -> None:
        """A step has run for these requests; they still hold the media that it read."""
        self._offering.begin(requests)

    def finish_offers(self, requests: Sequence[Request]) -> list[Offer]:
        """What the step made is findable now; returns what was written for the tiers."""
        return self._offering.finish(requests)

    def end(self, request: Request) -> None:
        """A request ended."""
        self._offering.end(request)
