"""Who holds which block, and which content can still be found in it.

Every block is in exactly one of three states:

    free    no reader, nothing worth finding      (allocated first)
    cached  no reader, findable by its key        (given up in the order of eviction.py)
    used    one or more readers

so that ``num_free + num_cached + num_used == num_blocks`` after every call. K and V of text and of
media, cross-attention K and V and encoder outputs share the pool: nothing is reserved for a
modality that no request brings, and one policy weighs them all.

Blocks that are worth nothing without each other (the pieces of one encoder output) are bound to
one entry: read together, given up together.

Must not know: what a content means, torch, requests.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from chiasm_contract.errors import InvariantError

from chiasm_worker.kvcache.eviction import EvictionQueue
from chiasm_worker.kvcache.rebuild_cost import BlockKind, Rebuild, RebuildCosts

_UNKNOWN = Rebuild(BlockKind.TEXT_KV, 1)


@dataclass(slots=True)
class _Block:
    ref_cnt: int = 0
    # Bumped whenever the bytes stop meaning what they meant, so that a stale id can be told.
    slot_gen: int = 0
    key: bytes | None = None
    content: Hashable = None
    rebuild: Rebuild = _UNKNOWN
    # Without the block of this key nobody can find this one.
    parent_key: bytes | None = None
    # The highest credit of a descendant so far: this block must not be given up before it.
    min_credit: float = 0.0
    # How often it lost its last reader and was wanted again.
    num_uses: int = 0
    # All blocks of the entry that this one belongs to; empty: an entry of its own.
    entry: tuple[int, ...] = ()


class BlockPool:
    """Reference counts, a free list and the queue of findable blocks without reader."""

    def __init__(self, num_blocks: int, costs: RebuildCosts | None = None) -> None:
        self.num_blocks = num_blocks
        self.num_cached = 0
        self.num_evictions: Counter[BlockKind] = Counter()
        # By kind and modality.
        self.num_findable: Counter[tuple[BlockKind, str]] = Counter()
        self.costs = RebuildCosts() if costs is None else costs
        self._blocks = [_Block() for _ in range(num_blocks)]
        self._free: deque[int] = deque(range(num_blocks))
        self._queue = EvictionQueue()
        self._by_key: dict[bytes, int] = {}

    @property
    def num_free(self) -> int:
        """Blocks without reader and without findable content."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Blocks with at least one reader."""
        return self.num_blocks - self.num_allocatable

    @property
    def num_allocatable(self) -> int:
        """Blocks that `allocate` could hand out now."""
        return len(self._free) + self.num_cached

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
        while len(self._free) < count:
            self._evict()
        block_ids = [self._free.popleft() for _ in range(count)]
        for block_id in block_ids:
            self._blocks[block_id].ref_cnt = 1
        return block_ids

    def acquire(self, block_ids: Iterable[int]) -> None:
        """Add a reader to blocks that are used or cached; to all of an entry or to none."""
        for block_id in block_ids:
            block = self._blocks[block_id]
            if block.ref_cnt == 0:
                if block.key is None:
                    raise InvariantError(f"Block {block_id} is free and cannot gain a reader; bug.")
                self._queue.discard(_head(block_id, block))
                self.num_cached -= 1
            block.ref_cnt += 1

    def release(self, block_ids: Iterable[int], *, was_used: bool = True) -> None:
        """Take a reader away; a block without readers becomes cached or free, in this order.

        Args:
            was_used: False for a reader that could not begin: it shows no demand for a block.
        """
        for block_id in block_ids:
            block = self._blocks[block_id]
            if block.ref_cnt < 1:
                raise InvariantError(
                    f"Block {block_id} has ref_cnt {block.ref_cnt} and was released again; bug."
                )
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                if block.key is None:
                    self._set_free(block_id)
                else:
                    self.num_cached += 1
                    self._enqueue(block_id, block, was_used=was_used)

    def commit(
        self,
        block_id: int,
        key: bytes,
        content: Hashable,
        rebuild: Rebuild = _UNKNOWN,
        parent_key: bytes | None = None,
    ) -> int:
        """Make a used block findable; returns the block in which its content is found from now on.

        That is another one if it was findable already: read that one and release this.
        """
        block = self._blocks[block_id]
        if block.ref_cnt < 1 or block.key is not None:
            raise InvariantError(
                f"Block {block_id} with ref_cnt {block.ref_cnt} cannot be committed (again); bug."
            )
        if key in self._by_key:
            found = self._by_key[key]
            return found if self._blocks[found].content == content else block_id
        block.key, block.content = key, content
        block.rebuild, block.parent_key = rebuild, parent_key
        self._by_key[key] = block_id
        self.num_findable[rebuild.kind, rebuild.modality] += 1
        return block_id

    def bind(self, block_ids: Sequence[int]) -> None:
        """Make committed blocks one entry, to be given up together; its cost is their sum."""
        entry = tuple(block_ids)
        for block_id in entry:
            block = self._blocks[block_id]
            if block.ref_cnt < 1 or block.key is None:
                raise InvariantError(
                    f"Block {block_id} with ref_cnt {block.ref_cnt} cannot join an entry; bug."
                )
            block.entry = entry

    def lookup(self, key: bytes, content: Hashable) -> int | None:
        """The block with this key, if its whole content equals `content`; takes no reader."""
        block_id = self._by_key.get(key)
        if block_id is None or self._blocks[block_id].content != content:
            return None
        return block_id

    def holds(self, key: bytes) -> bool:
        """Whether a block with this key can be found.

        One lookup, so any thread may ask; the answer may be old when it is used.
        """
        return key in self._by_key

    def uncommit(self, block_ids: Iterable[int]) -> None:
        """Make blocks, and all of their entries, unfindable: they hold not what their keys say."""
        entries = [self._blocks[block_id].entry or (block_id,) for block_id in block_ids]
        for block_id in dict.fromkeys(block_id for entry in entries for block_id in entry):
            block = self._blocks[block_id]
            if block.key is not None:
                if block.ref_cnt == 0:
                    self._queue.discard(_head(block_id, block))
                    self.num_cached -= 1
                self._forget(block_id)
                if block.ref_cnt == 0:
                    self._set_free(block_id)

    def check(self) -> None:
        """Raise InvariantError unless every block is in the state that its counters say."""
        used = sum(block.ref_cnt > 0 for block in self._blocks)
        if self.num_free + self.num_cached + used != self.num_blocks:
            raise InvariantError(
                f"free {self.num_free} + cached {self.num_cached} + used {used} "
                f"!= total {self.num_blocks}; this is a bug."
            )
        free = set(self._free)
        if len(free) != len(self._free):
            raise InvariantError("A block is in the free list twice; bug.")
        for block_id, block in enumerate(self._blocks):
            is_cached = block.ref_cnt == 0 and block.key is not None
            is_free = block.ref_cnt == 0 and block.key is None
            if is_free != (block_id in free) or is_cached != (
                _head(block_id, block) in self._queue
            ):
                raise InvariantError(f"Block {block_id} is listed in the wrong state; bug.")
        for key, block_id in self._by_key.items():
            block = self._blocks[block_id]
            if block.key != key:
                raise InvariantError(f"Key {key.hex()} points to block {block_id}, not back; bug.")
            if block.parent_key is not None and block.parent_key not in self._by_key:
                raise InvariantError(f"Block {block_id} was left behind by its parent; bug.")

    def _enqueue(self, block_id: int, block: _Block, *, was_used: bool) -> None:
        """Queue an entry once the last of its blocks has no reader; its ancestors stay behind."""
        entry = block.entry or (block_id,)
        if any(self._blocks[other].ref_cnt for other in entry):
            return
        seconds = sum(self.costs.seconds(self._blocks[other].rebuild) for other in entry)
        head = self._blocks[entry[0]]
        head.num_uses = max(1, head.num_uses + was_used)
        cost = head.num_uses * seconds / len(entry)
        standing = self._queue.add(entry[0], cost, block.min_credit)
        parent_key = block.parent_key
        while parent_key is not None and (parent_id := self._by_key.get(parent_key)) is not None:
            parent = self._blocks[parent_id]
            place = self._queue.standing(parent_id)
            if place is not None and place > standing:
                return
            if place is None and parent.min_credit >= standing.credit:
                return
            parent.min_credit = max(parent.min_credit, standing.credit)
            if place is not None:
                standing = self._queue.add(parent_id, 0.0, standing.credit)
            parent_key = parent.parent_key

    def _evict(self) -> None:
        head = self._queue.pop()
        for block_id in self._blocks[head].entry or (head,):
            self.num_evictions[self._blocks[block_id].rebuild.kind] += 1
            self._forget(block_id)
            self.num_cached -= 1
            self._free.append(block_id)

    def _set_free(self, block_id: int) -> None:
        self._blocks[block_id].slot_gen += 1
        self._free.append(block_id)

    def _forget(self, block_id: int) -> None:
        block = self._blocks[block_id]
        if block.key is not None:
            del self._by_key[block.key]
            self.num_findable[block.rebuild.kind, block.rebuild.modality] -= 1
        block.key, block.content, block.parent_key, block.entry = None, None, None, ()
        block.min_credit, block.num_uses = 0.0, 0
        block.slot_gen += 1


def _head(block_id: int, block: _Block) -> int:
    """The number under which a block's entry is queued."""
    return block.entry[0] if block.entry else block_id
