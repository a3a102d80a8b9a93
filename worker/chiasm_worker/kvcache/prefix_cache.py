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
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.rebuild_cost import BlockKind, Rebuild

_KV_TAG = b"chiasm.kv.block.v1"
_MEDIA_TAG = b"chiasm.media.block.v1"
_ROOT_TAG = b"chiasm.root.v2"
_SCOPE_TAG = b"chiasm.scope.v1"
_CROSS_TAG = b"chiasm.cross.v1"


@dataclass(frozen=True, slots=True)
class Compression:
    """How an encoder's output became fewer tokens."""

    compressor: str
    version: int  # of the compressor's arithmetic
    ratio: int
    token_grid: tuple[int, int, int]  # frames x rows x columns of the encoder's tokens
    window: tuple[int, int]  # rows x columns of it that one token stands for; less at the edges

    @property
    def num_encoder_tokens(self) -> int:
        """Tokens before compression."""
        frames, rows, columns = self.token_grid
        return frames * rows * columns


@dataclass(frozen=True, slots=True)
class MediaIdentity:
    """One media item as the language model sees it."""

    modality: str
    digest: bytes  # sha256 of the canonical pixels
    grid: tuple[int, ...]  # what the encoder made of the size: (t, h, w) or (h, w)
    num_tokens: int  # rows that the language model gets
    compression: Compression | None = None  # None: every token of the encoder's output

    @property
    def ratio(self) -> int:
        """About how many of the encoder's tokens each token stands for."""
        return 1 if self.compression is None else self.compression.ratio

    @property
    def num_encoder_tokens(self) -> int:
        """Tokens that the encoder makes of it, before they are compressed."""
        return self.num_tokens if self.compression is None else self.compression.num_encoder_tokens

    @property
    def encoded(self) -> MediaIdentity:
        """The same item before compression: what the encoder's output is stored as."""
        if self.compression is None:
            return self
        return replace(self, num_tokens=self.num_encoder_tokens, compression=None)


@dataclass(frozen=True, slots=True)
class MediaSpan:
    """Where a media item stands in a prompt, from its first to its last encoder token.

    Between them may stand ordinary tokens (row separators, times of frames), which have word
    embeddings like any text; the runs say exactly which tokens take the encoder's output.
    """

    item: MediaIdentity
    start: int
    position_digest: bytes  # sha256 of the position ids from start to end in this prompt
    # (offset from start, length) of each unbroken run of encoder tokens; empty: all in one run.
    runs: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        runs = self.runs or ((0, self.item.num_tokens),)
        object.__setattr__(self, "runs", runs)
        num_rows, end = sum(length for _, length in runs), 0
        for offset, length in runs:
            if offset < end or length < 1:
                raise ValueError(f"The runs {runs} of a media item overlap or are empty.")
            end = offset + length
        if runs[0][0] != 0 or num_rows != self.item.num_tokens:
            raise ValueError(
                f"The runs {runs} begin at {runs[0][0]} and hold {num_rows} tokens; they must "
                f"begin at 0 and hold the item's {self.item.num_tokens}."
            )

    @property
    def end(self) -> int:
        """First token after the item."""
        return self.start + sum(self.runs[-1])

    def pieces(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """(token, encoder row, length) of each run's part in the prompt tokens first..last-1."""
        row = 0
        for offset, length in self.runs:
            start = self.start + offset
            begin, end = max(first, start), min(last, start + length)
            if begin < end:
                yield begin, row + begin - start, end - begin
            row += length

    @property
    def needed_from(self) -> int:
        """First token whose computation reads the item's encoder output."""
        return self.start

    @property
    def needed_until(self) -> int:
        """First token from which on nothing reads it any more."""
        return self.end


@dataclass(frozen=True, slots=True)
class CrossSpan:
    """A media item that text reads by cross-attention; it takes one token of the text.

    Tokens start..end-1 see it. Those before the first item of a prompt read every item, because
    transformers lets a token that sees none attend to all.
    """

    item: MediaIdentity
    start: int
    end: int | None  # None: to the end of the answer
    num_visible: int  # the first vectors of the item, without those of padding

    @property
    def needed_from(self) -> int:
        """First token whose computation reads the item's K and V."""
        return 0

    @property
    def needed_until(self) -> int:
        """First token from which on nothing reads them any more."""
        return sys.maxsize if self.end is None else self.end


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
        kind = BlockKind.MEDIA_KV if self.media else BlockKind.TEXT_KV
        return Rebuild(kind, len(self.token_ids))


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
    """

    scope_fp: str
    root: bytes
    engine_gen: int = 0

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
