"""Whether a waiting request that found no room may find some by now.

The head of the queue would else be tried in every step over its whole prefix: a millisecond for a
few hundred blocks, between any two tokens of all running answers. It can only fare better when
there are more blocks to hand out, or when the block that follows its longest cached prefix has
been computed by somebody else.

Must not know: budgets, batches.
"""

from __future__ import annotations

from dataclasses import dataclass

from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.prefix_cache import find_prefix
from chiasm_worker.request import Request


@dataclass(frozen=True, slots=True)
class Refusal:
    """What there was when a request found no room."""

    rank: tuple[int, int, int]
    num_allocatable: int
    num_found: int | None  # leading blocks of its tokens in the cache; None: it looks for none

    @classmethod
    def of(cls, request: Request, pool: BlockPool, *, prefix_caching: bool) -> Refusal:
        """Remember a request that holds nothing, now that it has been refused."""
        found = find_prefix(pool, request.chain, request.token_ids) if prefix_caching else None
        num_found = None if found is None else len(found)
        return cls(request.rank, pool.num_allocatable, num_found)

    def still_holds(self, request: Request, pool: BlockPool) -> bool:
        """Whether trying this request again would be of no use."""
        if request.rank != self.rank or pool.num_allocatable > self.num_allocatable:
            return False
        return self.num_found is None or not self._finds_more(request, pool, self.num_found)

    def _finds_more(self, request: Request, pool: BlockPool, index: int) -> bool:
        # As in find_prefix, the last token is never taken from the cache.
        if index >= (len(request.token_ids) - 1) // request.table.block_size:
            return False
        content = request.chain.content(index, request.token_ids)
        return pool.lookup(content.key, content) is not None
