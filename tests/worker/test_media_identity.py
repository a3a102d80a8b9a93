"""Items and their places are whole, or no items and places at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from chiasm_worker.media_identity import Compression, MediaIdentity, MediaSpan

ITEM = MediaIdentity("image", b"d" * 32, (1, 4, 4), 6)


def test_the_encoder_computes_what_compression_leaves_out():
    pooled = replace(ITEM, num_tokens=2, compression=Compression("mean", 1, 4, (1, 2, 3), (2, 2)))
    assert (ITEM.num_encoder_tokens, pooled.num_encoder_tokens) == (6, 6)
    assert ITEM.encoded == pooled.encoded == ITEM


@pytest.mark.parametrize(
    "runs", [((0, 4), (5, 1)), ((1, 6),), ((0, 3), (2, 3)), ((0, 6), (7, 0))],
    ids=["too few", "late", "overlapping", "empty"],
)  # fmt: skip
def test_runs_that_do_not_hold_the_whole_item_are_refused(runs: tuple[tuple[int, int], ...]):
    with pytest.raises(ValueError, match="The runs"):
        MediaSpan(ITEM, 3, b"p" * 32, runs)
