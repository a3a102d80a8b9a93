"""From a request's token positions to places in the arena.

A block table is append-only while its request runs: token ``i`` lives in block
``block_ids[i // block_size]`` at offset ``i % block_size``.

Must not know: who else reads a block, torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class BlockTable:
    """The blocks of one request, in token order."""

    block_size: int
    block_ids: list[int] = field(default_factory=list)
    # Blocks up to here are findable; `commit` need not look again.
    num_committed: int = 0

    def num_missing(self, num_tokens: int) -> int:
        """Blocks to append before `num_tokens` tokens fit."""
        return max(0, -(-num_tokens // self.block_size) - len(self.block_ids))

    def take_all(self) -> list[int]:
        """Empty the table and return its blocks, last one first (the order to evict them in)."""
        block_ids = self.block_ids[::-1]
        self.block_ids = []
        self.num_committed = 0
        return block_ids
