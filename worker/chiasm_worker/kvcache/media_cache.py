"""Encoder outputs in the same pool as K and V, so that an item is encoded once.

An item's output is cut into block payloads, which are one entry: found by the item's identity
under the root of those who may read it, used by every request of theirs that has the item in a
coming chunk, and cached - then given up whole, when its credit is the lowest - once nobody needs
it. Half an entry is no entry.
What is kept is the output before compression, so that an item in several details is encoded once.

Must not know: torch, where in a prompt an item stands.
"""

from __future__ import annotations

from dataclasses import dataclass

from chiasm_contract.errors import InvariantError

from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.prefix_cache import MediaBlockContent, media_contents
from chiasm_worker.kvcache.rebuild_cost import BlockKind, Rebuild
from chiasm_worker.kvcache.spec import KVCacheSpec
from chiasm_worker.media_identity import MediaIdentity


@dataclass(frozen=True, slots=True, weakref_slot=True)
class MediaHandle:
    """A reader's hold on one item's encoder output; `is_new` means that it must be written now.

    Equal ones hold the same content: whatever is derived from it may be kept by handle.
    """

    item: MediaIdentity
    block_ids: tuple[int, ...]
    is_new: bool
    # The blocks' generations when they were taken: what they held then is what they hold.
    slot_gens: tuple[int, ...] = ()


class MediaCache:
    """Finds, allocates and gives back the blocks of encoder outputs."""

    def __init__(
        self,
        pool: BlockPool,
        spec: KVCacheSpec,
        bytes_per_token: int,
        vectors_per_block: int = 0,
    ) -> None:
        self._pool = pool
        self._spec = spec
        self._bytes_per_token = bytes_per_token
        # Where blocks are read one by one, no vector lies in two; 0: outputs fill them to the brim.
        self._vectors_per_block = vectors_per_block
        self._kind = BlockKind.CROSS_KV if vectors_per_block else BlockKind.ENCODER_OUTPUT

    def num_blocks(self, item: MediaIdentity) -> int:
        """Blocks that the item's encoder output needs."""
        num_vectors = item.num_encoder_tokens
        if self._vectors_per_block:
            return -(-num_vectors // self._vectors_per_block)
        return self._spec.blocks_for_bytes(num_vectors * self._bytes_per_token)

    def contains(self, root: bytes, item: MediaIdentity) -> bool:
        """Whether the item's output is there, or will be once the chosen step has run."""
        return self._find(self.contents(root, item)) is not None

    def acquire(self, root: bytes, item: MediaIdentity) -> MediaHandle | None:
        """Hold the item's output, allocating room for it when it is not there; None if no room."""
        item = item.encoded
        contents = self.contents(root, item)
        found = self._find(contents)
        if found is not None:
            self._pool.acquire(found)
            return self._handle(item, found, is_new=False)
        fresh = self._pool.allocate(len(contents))
        if fresh is None:
            return None
        for content, block_id in zip(contents, fresh, strict=True):
            self._pool.commit(block_id, content.key, content, self.rebuild(item, content.index))
        self._pool.bind(fresh)
        return self._handle(item, fresh, is_new=True)

    def release(self, handle: MediaHandle) -> None:
        """Give up a hold; the output stays findable until its room is needed."""
        self._pool.release(reversed(handle.block_ids))

    def take_back(self, handle: MediaHandle) -> None:
        """Undo `acquire` before the step ran: an output that was not written is not findable."""
        if handle.is_new:
            self._pool.uncommit(handle.block_ids)
        self._pool.release(reversed(handle.block_ids), was_used=False)

    def forget(self, handle: MediaHandle) -> None:
        """Make an output unfindable that was not written after all; its readers still hold it."""
        self._pool.uncommit(handle.block_ids)

    def check(self, handle: MediaHandle) -> None:
        """Raise InvariantError unless a handle's blocks hold what they held when it was made."""
        now = tuple(self._pool.slot_gen(block_id) for block_id in handle.block_ids)
        if now != handle.slot_gens:
            raise InvariantError(
                f"A media item lies in blocks {handle.block_ids} of generations "
                f"{handle.slot_gens}, but these are at {now}; bug."
            )

    def contents(self, root: bytes, item: MediaIdentity) -> list[MediaBlockContent]:
        """What the blocks of the item's encoder output hold, in order."""
        return media_contents(root, item.encoded, self.num_blocks(item))

    def rebuild(self, item: MediaIdentity, index: int = 0) -> Rebuild:
        """What having block `index` of the item again would take: the first stands for all."""
        num_tokens = item.encoded.num_tokens if index == 0 else 0
        return Rebuild(self._kind, num_tokens, item.modality)

    def _find(self, contents: list[MediaBlockContent]) -> list[int] | None:
        found = [self._pool.lookup(content.key, content) for content in contents]
        block_ids = [block_id for block_id in found if block_id is not None]
        return block_ids if len(block_ids) == len(contents) else None

    def _handle(self, item: MediaIdentity, block_ids: list[int], *, is_new: bool) -> MediaHandle:
        slot_gens = tuple(self._pool.slot_gen(block_id) for block_id in block_ids)
        return MediaHandle(item, tuple(block_ids), is_new, slot_gens)
