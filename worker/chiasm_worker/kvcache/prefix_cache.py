"""What makes two cache blocks interchangeable.

A K/V block may be used again for another request only if it was computed by the same model
(``root_key``), after the same blocks (``parent_key``), for the same tokens, and - where a token
stands for a piece of a picture - for the same piece of the same picture at the same positions.
All of it goes into the key, framed so that no two different contents share the hashed bytes, and
all of it is compared in full on a hit: a colliding hash is a miss.

Must not know: torch, the pool's policy beyond lookup and commit.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.rebuild_cost import BlockKind, Rebuild

_KV_TAG = b"chiasm.kv.block.v1"
_MEDIA_TAG = b"chiasm.media.block.v1"
_ROOT_TAG = b"chiasm.root.v1"


@dataclass(frozen=True, slots=True)
class MediaIdentity:
    """One media item as the language model sees it."""

    modality: str
    digest: bytes  # sha256 of the canonical pixels
    grid: tuple[int, ...]  # what the encoder made of the size: (t, h, w) or (h, w)
    num_tokens: int
    compression: int = 1  # language tokens are divided by this


@dataclass(frozen=True, slots=True)
class MediaSpan:
    """Where a media item stands in a prompt."""

    item: MediaIdentity
    start: int
    position_digest: bytes  # sha256 of the item's position ids in this prompt

    @property
    def end(self) -> int:
        """First token after the item."""
        return self.start + self.item.num_tokens


@dataclass(frozen=True, slots=True)
class MediaRun:
    """The part of a media item that falls into one block."""

    item: MediaIdentity
    offset_in_block: int
    offset_in_item: int
    length: int
    position_digest: bytes


@dataclass(frozen=True, slots=True)
class BlockContent:
    """Everything that a K/V block was computed from."""

    parent_key: bytes
    token_ids: tuple[int, ...]
    media: tuple[MediaRun, ...]
    key: bytes

    @property
    def rebuild(self) -> Rebuild:
        """What having it again would take: to prefill its tokens."""
        kind = BlockKind.MEDIA_KV if self.media else BlockKind.TEXT_KV
        return Rebuild(kind, len(self.token_ids))


@dataclass(frozen=True, slots=True)
class MediaBlockContent:
    """One block's share of a media item's encoder output."""

    item: MediaIdentity
    index: int
    key: bytes


def _frame(*parts: bytes) -> bytes:
    return b"".join(struct.pack("<Q", len(part)) + part for part in parts)


def _ints(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _identity(item: MediaIdentity) -> bytes:
    return _frame(
        item.modality.encode(),
        item.digest,
        _ints(item.grid),
        _ints((item.num_tokens, item.compression)),
    )


def root_key(compute_fp: str, repr_fp: str, scope_fp: str) -> bytes:
    """The parent of every first block: what the numbers mean, how they lie, who may read them."""
    parts = (compute_fp.encode(), repr_fp.encode(), scope_fp.encode())
    return hashlib.sha256(_frame(_ROOT_TAG, *parts)).digest()


def media_runs(spans: Sequence[MediaSpan], start: int, end: int) -> tuple[MediaRun, ...]:
    """The pieces of `spans` (in prompt order) inside the tokens start..end-1."""
    runs = []
    for span in spans:
        first, last = max(start, span.start), min(end, span.end)
        if first < last:
            runs.append(
                MediaRun(
                    item=span.item,
                    offset_in_block=first - start,
                    offset_in_item=first - span.start,
                    length=last - first,
                    position_digest=span.position_digest,
                )
            )
    return tuple(runs)


def block_content(
    parent_key: bytes, token_ids: Sequence[int], runs: tuple[MediaRun, ...]
) -> BlockContent:
    """The content, with its key, of the block that follows `parent_key`."""
    framed = [
        _frame(
            _identity(run.item),
            _ints((run.offset_in_block, run.offset_in_item, run.length)),
            run.position_digest,
        )
        for run in runs
    ]
    data = _frame(_KV_TAG, parent_key, _ints(token_ids), *framed)
    return BlockContent(parent_key, tuple(token_ids), runs, hashlib.sha256(data).digest())


def media_contents(root: bytes, item: MediaIdentity, num_blocks: int) -> list[MediaBlockContent]:
    """The contents of the blocks that hold an item's encoder output.

    Positions are not part of it: the encoder's output does not depend on where the item stands.
    """
    base = hashlib.sha256(_frame(_MEDIA_TAG, root, _identity(item))).digest()
    return [
        MediaBlockContent(item, i, hashlib.sha256(_frame(base, _ints((i, num_blocks)))).digest())
        for i in range(num_blocks)
    ]


class ContentChain:
    """The block contents of one growing token sequence, computed once per full block."""

    def __init__(self, root: bytes, block_size: int, spans: Sequence[MediaSpan]) -> None:
        self._root = root
        self.block_size = block_size
        self._spans = spans
        self._contents: list[BlockContent] = []

    def content(self, index: int, token_ids: Sequence[int]) -> BlockContent:
        """The content of full block `index` of the sequence `token_ids`."""
        size = self.block_size
        while len(self._contents) <= index:
            start = len(self._contents) * size
            parent = self._contents[-1].key if self._contents else self._root
            runs = media_runs(self._spans, start, start + size)
            self._contents.append(block_content(parent, token_ids[start : start + size], runs))
        return self._contents[index]


def find_prefix(pool: BlockPool, chain: ContentChain, token_ids: Sequence[int]) -> list[int]:
    """The longest run of cached blocks that `token_ids` starts with, leaving one token to compute.

    The last token is never taken from the cache, because its logits are what the request wants.
    """
    block_ids: list[int] = []
    size = chain.block_size
    for index in range((len(token_ids) - 1) // size):
        content = chain.content(index, token_ids)
        block_id = pool.lookup(content.key, content)
        if block_id is None:
            break
        block_ids.append(block_id)
    return block_ids
