"""What becomes of an encoder's output: what a window holds, and what one token is made of."""

from __future__ import annotations

import pytest
import torch
from chiasm_worker.models.compressor import (
    COMPRESSORS,
    TokenGrid,
    Window,
    reduced,
    window_of,
    windows,
)
from hypothesis import given
from hypothesis import strategies as st

GRIDS = st.builds(TokenGrid, st.integers(1, 3), st.integers(1, 9), st.integers(1, 9))
RATIOS = st.sampled_from([1, 4, 8, 16])


def features(grid: TokenGrid, width: int = 6) -> torch.Tensor:
    return torch.randn((grid.num_tokens, width), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(
    ("grid", "ratio", "window", "after"),
    [
        ((1, 8, 8), 1, (1, 1), (1, 8, 8)),
        ((1, 8, 8), 4, (2, 2), (1, 4, 4)),
        ((1, 8, 8), 8, (2, 4), (1, 4, 2)),
        ((1, 8, 8), 16, (4, 4), (1, 2, 2)),
        ((1, 9, 5), 4, (2, 2), (1, 5, 3)),
        ((1, 9, 5), 8, (4, 2), (1, 3, 3)),
        ((2, 5, 9), 8, (2, 4), (2, 3, 3)),
        ((1, 1, 10), 16, (4, 4), (1, 1, 3)),
    ],
)
def test_ratios_and_grids(
    grid: tuple[int, int, int],
    ratio: int,
    window: tuple[int, int],
    after: tuple[int, int, int],
):
    assert window_of(TokenGrid(*grid), ratio) == window
    assert reduced(TokenGrid(*grid), Window(*window)) == after


@given(GRIDS, RATIOS)
def test_every_token_falls_into_one_window(grid: TokenGrid, ratio: int):
    window = window_of(grid, ratio)
    held = windows(grid, window)
    assert held.shape == (reduced(grid, window).num_tokens, window.rows * window.columns)
    inside = held[held >= 0]
    assert sorted(inside.tolist()) == list(range(grid.num_tokens))
    assert bool((held >= 0).any(dim=1).all())


def test_windows_lie_in_reading_order():
    assert windows(TokenGrid(1, 3, 3), Window(2, 2)).tolist() == [
        [0, 1, 3, 4], [2, -1, 5, -1], [6, 7, -1, -1], [8, -1, -1, -1],
    ]  # fmt: skip


def test_the_mean_at_an_edge_is_over_what_there_is():
    output = torch.tensor([[1.0], [2.0], [6.0]])
    assert COMPRESSORS["mean"].compress(output, TokenGrid(1, 1, 3), Window(2, 2)).tolist() == [
        [1.5], [6.0],
    ]  # fmt: skip


def test_the_salient_token_is_kept_whole():
    # The mean is (1, 1): of the left window the last token differs most, of the right the first.
    output = torch.tensor([[1.0, 1.0], [1.5, 1.0], [-1.0, 1.0], [0.5, 1.0], [3.0, 1.0], [1.0, 1.0]])
    kept = COMPRESSORS["salient"].compress(output, TokenGrid(1, 1, 6), Window(1, 3))
    assert kept.tolist() == [[-1.0, 1.0], [3.0, 1.0]]


@pytest.mark.parametrize("name", COMPRESSORS)
@given(grid=GRIDS, ratio=RATIOS)
def test_each_token_is_made_of_its_own_window(name: str, grid: TokenGrid, ratio: int):
    output, window = features(grid), window_of(grid, ratio)
    tokens = COMPRESSORS[name].compress(output, grid, window)
    for token, held in zip(tokens, windows(grid, window), strict=True):
        inside = output[held[held >= 0]]
        if name == "mean":
            # fp32 sums in another order
            torch.testing.assert_close(token, inside.mean(dim=0), rtol=1e-5, atol=1e-6)
        else:
            distances = (inside - output.mean(dim=0)).norm(dim=1)
            assert torch.equal(token, inside[distances.argmax()])
    assert tokens.shape == (reduced(grid, window).num_tokens, output.shape[1])


@pytest.mark.parametrize("name", COMPRESSORS)
def test_half_precision_stays_and_one_to_one_changes_nothing(name: str):
    grid = TokenGrid(1, 4, 5)
    output = features(grid).to(torch.bfloat16)
    assert COMPRESSORS[name].compress(output, grid, Window(2, 2)).dtype == torch.bfloat16
    assert torch.equal(COMPRESSORS[name].compress(output, grid, Window(1, 1)), output)
