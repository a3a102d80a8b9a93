"""Blocks in use against the blocks that requests account for, between two steps.

Both sides are counted from their own books: the pool's readers, the requests' tables and holds. In
a sound engine they are equal at any moment, whatever requests come and go, so no limit is needed:
one block too many is one that nobody will ever give back.

Pure bookkeeping; must not know: torch, clocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.request import Request


@dataclass(frozen=True, slots=True)
class Books:
    """What is in use, and for whom.

    Attributes:
        num_steps: since start, when this was read.
        num_used: blocks with a reader, as the pool says.
        num_held: distinct blocks that requests hold.
        num_miscounted: of those, blocks with another number of readers than holders.
        num_unread: of those, blocks without any reader: the pool would hand them out again.
        num_surplus: blocks of tables beyond what their tokens need.
        num_orphans: blocks of media that no coming token of their request reads.
        num_requests: that the scheduler knows.
    """

    num_steps: int
    num_blocks: int
    record_bytes: int
    num_used: int
    num_held: int
    num_miscounted: int = 0
    num_unread: int = 0
    num_surplus: int = 0
    num_orphans: int = 0
    num_requests: int = 0

    @property
    def num_unexplained(self) -> int:
        """Blocks in use that no request holds, or holds without need."""
        return max(0, self.num_used - self.num_held) + self.num_surplus + self.num_orphans


def read_books(
    pool: BlockPool, requests: Iterable[Request], num_steps: int, record_bytes: int
) -> Books:
    """Count; takes as long as there are blocks in use, not blocks in all."""
    holders: Counter[int] = Counter()
    num_requests = num_surplus = num_orphans = 0
    for request in requests:
        num_requests += 1
        holders.update(request.table.block_ids)
        needed = -(-len(request.token_ids) // request.table.block_size)
        num_surplus += max(0, len(request.table.block_ids) - needed)
        for index, handle in request.media.items():
            holders.update(handle.block_ids)
            if request.prompt.media[index].needed_until <= request.num_computed_tokens:
                num_orphans += len(handle.block_ids)
    readers = {block_id: pool.ref_cnt(block_id) for block_id in holders}
    return Books(
        num_steps=num_steps,
        num_blocks=pool.num_blocks,
        record_bytes=record_bytes,
        num_used=pool.num_used,
        num_held=len(holders),
        num_miscounted=sum(readers[block_id] != count for block_id, count in holders.items()),
        num_unread=sum(count == 0 for count in readers.values()),
        num_surplus=num_surplus,
        num_orphans=num_orphans,
        num_requests=num_requests,
    )
