"""Who holds which block, and which content can still be found in it.

Every block is in exactly one of three states:

    free    no reader, nothing worth finding      (allocated first)
    cached  no reader, findable by its key        (evicted in least-recently-used order)
    used    one or more readers

so that ``num_free + num_cached + num_used == num_blocks`` after every call. K/V blocks and
encoder outputs share the pool: nothing is reserved for a modality that no request brings.

Must not know: what a content means, torch, requests.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from chiasm_contract.errors import InvariantError


@dataclass(slots=True)
class _Block:
    ref_cnt: int = 0
    # Bumped whenever the bytes stop meaning what they meant, so that a stale id can be told.
    slot_gen: int = 0
    key: bytes | None = None
    content: Hashable = None


class BlockPool:
    """Reference counts, a free list and an LRU of findable blocks."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._blocks = [_Block() for _ in range(num_blocks)]
        self._free: deque[int] = deque(range(num_blocks))
        self._evictable: OrderedDict[int, None] = OrderedDict()
        self._by_key: dict[bytes, int] = {}

    @property
    def num_free(self) -> int:
        """Blocks without reader and without findable content."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Blocks without reader whose content can still be found."""
        return len(self._evictable)

    @property
    def num_used(self) -> int:
        """Blocks with at least one reader."""
        return self.num_blocks - len(self._free) - len(self._evictable)

    @property
    def num_allocatable(self) -> int:
        """Blocks that `allocate` could hand out now."""
        return len(self._free) + len(self._evictable)

    def ref_cnt(self, block_id: int) -> int:
        """Number of readers of a block."""
        return self._blocks[block_id].ref_cnt

    def slot_gen(self, block_id: int) -> int:
        """How often the block's content was given up."""
        return self._blocks[block_id].slot_gen

    def allocate(self, count: int) -> list[int] | None:
        """Hand out `count` blocks with one reader each, evicting if need be; None if too few."""
        if count > self.num_allocatable:
            return None
        block_ids = []
        for _ in range(count):
            if self._free:
                block_id = self._free.popleft()
            else:
                block_id, _ = self._evictable.popitem(last=False)
                self._forget(block_id)
            self._blocks[block_id].ref_cnt = 1
            block_ids.append(block_id)
        return block_ids

    def acquire(self, block_ids: Iterable[int]) -> None:
        """Add a reader to blocks that are used or cached."""
        for block_id in block_ids:
            block = self._blocks[block_id]
            if block.ref_cnt == 0:
                if block_id not in self._evictable:
                    raise InvariantError(f"Block {block_id} is free and cannot gain a reader; bug.")
                del self._evictable[block_id]
            block.ref_cnt += 1

    def release(self, block_ids: Iterable[int]) -> None:
        """Take a reader away; a block without readers becomes cached or free, in this order."""
        for block_id in block_ids:
            block = self._blocks[block_id]
            if block.ref_cnt < 1:
                raise InvariantError(
                    f"Block {block_id} has ref_cnt {block.ref_cnt} and was released again; bug."
                )
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                if block.key is None:
                    block.slot_gen += 1
                    self._free.append(block_id)
                else:
                    self._evictable[block_id] = None

    def commit(self, block_id: int, key: bytes, content: Hashable) -> bool:
        """Make a used block findable; False if the same key is already found elsewhere."""
        block = self._blocks[block_id]
        if block.ref_cnt < 1 or block.key is not None:
            raise InvariantError(
                f"Block {block_id} with ref_cnt {block.ref_cnt} cannot be committed (again); bug."
            )
        if key in self._by_key:
            return False
        block.key, block.content = key, content
        self._by_key[key] = block_id
        return True

    def lookup(self, key: bytes, content: Hashable) -> int | None:
        """The block with this key, if its whole content equals `content`; takes no reader."""
        block_id = self._by_key.get(key)
        if block_id is None or self._blocks[block_id].content != content:
            return None
        return block_id

    def uncommit(self, block_ids: Iterable[int]) -> None:
        """Make blocks unfindable because what they hold is not what their key says."""
        for block_id in block_ids:
            if self._blocks[block_id].key is not None:
                self._forget(block_id)
                if block_id in self._evictable:
                    del self._evictable[block_id]
                    self._free.append(block_id)

    def check(self) -> None:
        """Raise InvariantError unless every block is in the state that its counters say."""
        used = sum(block.ref_cnt > 0 for block in self._blocks)
        if self.num_free + self.num_cached + used != self.num_blocks:
            raise InvariantError(
                f"free {self.num_free} + cached {self.num_cached} + used {used} "
                f"!= total {self.num_blocks}; this is a bug."
            )
        for block_id in (*self._free, *self._evictable):
            block = self._blocks[block_id]
            if block.ref_cnt != 0 or (block.key is None) != (block_id not in self._evictable):
                raise InvariantError(f"Block {block_id} is listed in the wrong state; bug.")
        for key, block_id in self._by_key.items():
            if self._blocks[block_id].key != key:
                raise InvariantError(f"Key {key.hex()} points to block {block_id}, not back; bug.")

    def _forget(self, block_id: int) -> None:
        block = self._blocks[block_id]
        if block.key is not None:
            del self._by_key[block.key]
        block.key, block.content = None, None
        block.slot_gen += 1
