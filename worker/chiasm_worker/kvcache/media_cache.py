"""Encoder outputs in the same pool as K and V, so that an item is encoded once.

An item's output is cut into block payloads. Its blocks are found by the item's identity, used by
every request that has the item in a coming chunk, and cached - then evicted like any other
block - once nobody needs them. Half an entry is no entry: what is missing is encoded again.
What is kept is the output before compression, so that an item in several details is encoded once.

Must not know: torch, where in a prompt an item stands.
"""

from __future__ import annotations

from dataclasses import dataclass

from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.prefix_cache import MediaIdentity, media_contents
from chiasm_worker.kvcache.spec import KVCacheSpec


@dataclass(frozen=True, slots=True)
class MediaHandle:
    """A reader's hold on one item's encoder output; `is_new` means that it must be written now."""

    item: MediaIdentity
    block_ids: tuple[int, ...]
    is_new: bool


class MediaCache:
    """Finds, allocates and gives back the blocks of encoder outputs."""

    def __init__(
        self,
        pool: BlockPool,
        spec: KVCacheSpec,
        root: bytes,
        bytes_per_token: int,
        vectors_per_block: int = 0,
    ) -> None:
        self._pool = pool
        self._spec = spec
        self._root = root
        self._bytes_per_token = bytes_per_token
        # Where blocks are read one by one, no vector lies in two; 0: outputs fill them to the brim.
        self._vectors_per_block = vectors_per_block

    def num_blocks(self, item: MediaIdentity) -> int:
        """Blocks that the item's encoder output needs."""
        num_vectors = item.encoded.num_tokens
        if self._vectors_per_block:
            return -(-num_vectors // self._vectors_per_block)
        return self._spec.blocks_for_bytes(num_vectors * self._bytes_per_token)

    def acquire(self, item: MediaIdentity) -> MediaHandle | None:
        """Hold the item's output, allocating room for it when it is not there; None if no room."""
        item = item.encoded
        contents = media_contents(self._root, item, self.num_blocks(item))
        found = [self._pool.lookup(content.key, content) for content in contents]
        present = [block_id for block_id in found if block_id is not None]
        self._pool.acquire(present)
        fresh = self._pool.allocate(len(contents) - len(present))
        if fresh is None:
            self._pool.release(reversed(present))
            return None
        is_new = bool(fresh)
        block_ids = []
        for content, block_id in zip(contents, found, strict=True):
            if block_id is None:
                block_id = fresh.pop(0)  # noqa: PLW2901
                self._pool.commit(block_id, content.key, content)
            block_ids.append(block_id)
        return MediaHandle(item, tuple(block_ids), is_new)

    def release(self, handle: MediaHandle) -> None:
        """Give up a hold; the output stays findable until its room is needed."""
        self._pool.release(reversed(handle.block_ids))

    def take_back(self, handle: MediaHandle) -> None:
        """Undo `acquire` before the step ran: an output that was not written is not findable."""
        if handle.is_new:
            self._pool.uncommit(handle.block_ids)
        self._pool.release(reversed(handle.block_ids))
