"""Fewer vision tokens of an encoder's output, before the language model sees them.

The grid of an item's tokens is cut into windows, and each window becomes one token. How, is the
compressor's choice; neither of the two here is trained. Every feature that the encoder hands over
is treated alike, those for DeepStack too. The family's position scheme places what remains
(`Family.positions`); compressor, ratio and window are part of every compressed block's identity.

Must not know: requests, blocks, positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import torch
from torch.nn.functional import pad


class TokenGrid(NamedTuple):
    """Vision tokens in reading order: frame by frame, row by row."""

    frames: int
    rows: int
    columns: int

    @property
    def num_tokens(self) -> int:
        """Tokens of the whole grid."""
        return self.frames * self.rows * self.columns


class Window(NamedTuple):
    """What of a grid becomes one token; less at the edges, where a side does not divide."""

    rows: int
    columns: int


class Compressor(Protocol):
    """Makes one token of each window of one item's encoder output."""

    @property
    def version(self) -> int:
        """Goes up when the same output gives another result; part of block identities."""
        ...

    def compress(self, output: torch.Tensor, grid: TokenGrid, window: Window) -> torch.Tensor:
        """[num_windows, width] of output [grid.num_tokens, width], in its type."""
        ...


class SalientToken:
    """Keeps of each window the token that differs most from the picture's mean.

    On the demo model this loses far less than the mean does, which blends what stands in one token
    with the background beside it (docs/log.md has the numbers).
    """

    version = 1

    def compress(self, output: torch.Tensor, grid: TokenGrid, window: Window) -> torch.Tensor:
        """See Compressor; of equals the first is kept."""
        held = windows(grid, window).to(output.device)
        exact = output.float()
        distance = (exact - exact.mean(dim=0)).norm(dim=1)
        score = distance[held.clamp(min=0)].masked_fill(held < 0, -1.0)
        kept = held.gather(1, score.argmax(dim=1, keepdim=True)).squeeze(1)
        return output.index_select(0, kept)


class MeanPool:
    """The mean of each window, over what there is of it; sums in fp32."""

    version = 1

    def compress(self, output: torch.Tensor, grid: TokenGrid, window: Window) -> torch.Tensor:
        """See Compressor."""
        held = windows(grid, window).to(output.device)
        inside = (held >= 0).unsqueeze(2)
        sums = (output.float()[held.clamp(min=0)] * inside).sum(dim=1)
        return (sums / inside.sum(dim=1)).to(output.dtype)


COMPRESSORS: Mapping[str, Compressor] = {"salient": SalientToken(), "mean": MeanPool()}


def window_of(grid: TokenGrid, ratio: int) -> Window:
    """4 is 2 x 2 tokens, 16 is 4 x 4, 8 takes 4 along the longer side; frames are never mixed."""
    eight = Window(2, 4) if grid.columns >= grid.rows else Window(4, 2)
    return {1: Window(1, 1), 4: Window(2, 2), 8: eight, 16: Window(4, 4)}[ratio]


def reduced(grid: TokenGrid, window: Window) -> TokenGrid:
    """The grid of windows: ceil(rows / window rows) x ceil(columns / window columns)."""
    return TokenGrid(grid.frames, -(-grid.rows // window.rows), -(-grid.columns // window.columns))


def windows(grid: TokenGrid, window: Window) -> torch.Tensor:
    """[num_windows, tokens of a whole window] int64: which tokens; -1 lies beyond the edge."""
    tokens = torch.arange(grid.num_tokens).view(grid)
    missing = (0, -grid.columns % window.columns, 0, -grid.rows % window.rows)
    cut = pad(tokens, missing, value=-1).unfold(1, window.rows, window.rows)
    return cut.unfold(2, window.columns, window.columns).reshape(-1, window.rows * window.columns)
