"""A media item as the language model sees it, and where it stands in a prompt: plain data.

Everything that looks at media (modality, models), schedules them or caches what was made of them
speaks of them in these words.

Must not know: torch, files, blocks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace


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


def one_modality(modalities: Iterable[str]) -> str:
    """What a whole is whose media are these: one modality, `mixed`, or `text` without any."""
    found = set(modalities)
    return "mixed" if len(found) > 1 else next(iter(found), "text")
