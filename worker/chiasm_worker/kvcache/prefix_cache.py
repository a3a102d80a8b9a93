"""What makes two cache blocks interchangeable.

A K/V block may be used again for another request only if it was computed by the same model
(``root_key``), for the same readers (``CacheScope``), after the same blocks (``parent_key``), for
the same tokens, and - where a token stands for a piece of a picture - for the same piece of the
same picture at the same positions.
Where tokens see those behind them, what is behind them counts too: the whole of each
bidirectional span that begins in the block; and all pictures that are read by cross-attention
count for every block of a prompt. All of it goes into the key, framed so that no two different
contents share the hashed bytes, and all of it is compared in full on a hit: a colliding hash is a
miss.

Must not know: torch, the pool's policy beyond lookup and commit.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.rebuild_cost import BlockKind, Rebuild
from chiasm_worker.media_identity import CrossSpan, MediaIdentity, MediaSpan, one_modality

_KV_TAG = b"chiasm.kv.block.v1"
_MEDIA_TAG = b"chiasm.media.block.v1"
_ROOT_TAG = b"chiasm.root.v2"
_SCOPE_TAG = b"chiasm.scope.v1"
_CROSS_TAG = b"chiasm.cross.v1"


@dataclass(frozen=True, slots=True)
class MediaRun:
    """An unbroken part of a media item inside one block: which of its encoder's rows, and where."""

    item: MediaIdentity
    offset_in_block: int
    offset_in_item: int
    length: int
    position_digest: bytes


@dataclass(frozen=True, slots=True)
class WholeSpan:
    """A bidirectional span: each of its tokens depends on all of it."""

    offset_in_block: int
    token_ids: tuple[int, ...]
    media: tuple[MediaRun, ...]


@dataclass(frozen=True, slots=True)
class BlockContent:
    """Everything that a K/V block was computed from."""

    parent_key: bytes
    token_ids: tuple[int, ...]
    media: tuple[MediaRun, ...]
    spans: tuple[WholeSpan, ...]
    key: bytes

    @property
    def rebuild(self) -> Rebuild:
        """What having it again would take: to prefill its tokens."""
        if not self.media:
            return Rebuild(BlockKind.TEXT_KV, len(self.token_ids))
        modality = one_modality(run.item.modality for run in self.media)
        return Rebuild(BlockKind.MEDIA_KV, len(self.token_ids), modality)


@dataclass(frozen=True, slots=True)
class MediaBlockContent:
    """One block's share of a media item's encoder output."""

    root: bytes
    item: MediaIdentity
    index: int
    key: bytes


def _frame(*parts: bytes) -> bytes:
    return b"".join(struct.pack("<Q", len(part)) + part for part in parts)


def _ints(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _identity(item: MediaIdentity) -> bytes:
    parts = [
        item.modality.encode(), item.digest, _ints(item.grid), _ints((item.num_tokens,)),
    ]  # fmt: skip
    if item.compression is not None:
        how = item.compression
        parts += [how.compressor.encode(), _ints((how.version, how.ratio, *how.window))]
    return _frame(*parts)


def root_key(compute_fp: str, repr_fp: str) -> bytes:
    """What every key of an engine descends from: what the numbers mean and how they lie."""
    return hashlib.sha256(_frame(_ROOT_TAG, compute_fp.encode(), repr_fp.encode())).digest()


@dataclass(frozen=True, slots=True)
class CacheScope:
    """Who may find what a request leaves behind; requests of different scopes share nothing.

    Attributes:
        scope_fp: 64 hex digits that stand for the readers.
        root: the parent of every first block and of every encoder output of these readers.
        engine_gen: between which two swaps of the model the request began; it ends with that model.
        is_offered: whether the tiers are asked for, and offered, what these readers share.
    """

    scope_fp: str
    root: bytes
    engine_gen: int = 0
    is_offered: bool = True

    @classmethod
    def within(cls, engine_root: bytes, scope_fp: str, engine_gen: int = 0) -> CacheScope:
        """The readers `scope_fp` of one engine's blocks."""
        data = _frame(_SCOPE_TAG, engine_root, scope_fp.encode())
        return cls(scope_fp, hashlib.sha256(data).digest(), engine_gen)


def media_runs(spans: Sequence[MediaSpan], start: int, end: int) -> tuple[MediaRun, ...]:
    """The pieces of `spans` (in prompt order) inside the tokens start..end-1."""
    return tuple(
        MediaRun(
            item=span.item,
            offset_in_block=token - start,
            offset_in_item=row,
            length=length,
            position_digest=span.position_digest,
        )
        for span in spans
        for token, row, length in span.pieces(start, end)
    )


def block_content(
    parent_key: bytes,
    token_ids: Sequence[int],
    runs: tuple[MediaRun, ...],
    spans: tuple[WholeSpan, ...] = (),
) -> BlockContent:
    """The content, with its key, of the block that follows `parent_key`."""
    framed_runs, framed_spans = map(_framed_run, runs), map(_framed_span, spans)
    tokens = _ints(token_ids)
    data = _frame(_KV_TAG, parent_key, tokens, _frame(*framed_runs), _frame(*framed_spans))
    return BlockContent(parent_key, tuple(token_ids), runs, spans, hashlib.sha256(data).digest())


def _framed_run(run: MediaRun) -> bytes:
    place = _ints((run.offset_in_block, run.offset_in_item, run.length))
    return _frame(_identity(run.item), place, run.position_digest)


def _framed_span(span: WholeSpan) -> bytes:
    runs = _frame(*map(_framed_run, span.media))
    return _frame(_ints((span.offset_in_block,)), _ints(span.token_ids), runs)


def cross_root(root: bytes, cross: Sequence[CrossSpan]) -> bytes:
    """The parent of a prompt's first block: every token may depend on every item of `cross`."""
    if not cross:
        return root
    items = [_frame(_identity(span.item), _ints((span.num_visible,))) for span in cross]
    return hashlib.sha256(_frame(_CROSS_TAG, root, *items)).digest()


def media_contents(root: bytes, item: MediaIdentity, num_blocks: int) -> list[MediaBlockContent]:
    """The contents of the blocks that hold an item's encoder output.

    Positions are not part of it: the encoder's output does not depend on where the item stands.
    """
    base = hashlib.sha256(_frame(_MEDIA_TAG, root, _identity(item))).digest()
    return [
        MediaBlockContent(
            root, item, i, hashlib.sha256(_frame(base, _ints((i, num_blocks)))).digest()
        )
        for i in range(num_blocks)
    ]


class ContentChain:
    """The block contents of one growing token sequence, computed once per full block.

    Args:
        root: the parent of the first block.
        spans: the media items among the tokens.
        bidirectional: (start, end) of the tokens that see one another.
    """

    def __init__(
        self,
        root: bytes,
        block_size: int,
        spans: Sequence[MediaSpan],
        bidirectional: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._root = root
        self.block_size = block_size
        self._spans = spans
        self._bidirectional = bidirectional
        self._contents: list[BlockContent] = []

    def content(self, index: int, token_ids: Sequence[int]) -> BlockContent:
        """The content of full block `index` of the sequence `token_ids`."""
        size = self.block_size
        while len(self._contents) <= index:
            start = len(self._contents) * size
            parent = self._contents[-1].key if self._contents else self._root
            runs = media_runs(self._spans, start, start + size)
            whole = tuple(
                WholeSpan(
                    first - start,
                    tuple(token_ids[first:last]),
                    media_runs(self._spans, first, last),
                )
                for first, last in self._bidirectional
                if start <= first < start + size
            )
            tokens = token_ids[start : start + size]
            self._contents.append(block_content(parent, tokens, runs, whole))
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
