"""A family's mask rule in places, held against transformers' own."""

from __future__ import annotations

import numpy as np
import torch
from chiasm_worker.media_identity import MediaIdentity, MediaSpan
from chiasm_worker.models.mask import MaskRule, bidirectional_spans, cross_spans
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.gemma3.modeling_gemma3 import get_block_sequence_ids_for_mask
from transformers.models.mllama.processing_mllama import (
    convert_sparse_cross_attention_mask_to_dense,
    get_cross_attention_token_mask,
)

PICTURE = 1
GAPS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), max_size=4)


def media(gaps: list[tuple[int, int]]) -> list[MediaSpan]:
    """Items of the given lengths, each so many tokens behind the one before."""
    spans: list[MediaSpan] = []
    at = 0
    for gap, length in gaps:
        item = MediaIdentity("image", b"d" * 32, (1, 8, 4), length)
        spans.append(MediaSpan(item, at + gap, b"p" * 32))
        at = spans[-1].end
    return spans


@given(GAPS, st.integers(1, 5))
def test_picture_tokens_see_those_that_transformers_groups(
    gaps: list[tuple[int, int]], behind: int
):
    """The fault: pictures side by side, or a picture and words, taken for one another."""
    placed = media(gaps)
    num_tokens = (placed[-1].end if placed else 0) + behind
    kinds = torch.zeros(1, num_tokens, dtype=torch.int64)
    for span in placed:
        kinds[0, span.start : span.end] = PICTURE
    groups = get_block_sequence_ids_for_mask(kinds)[0].tolist()
    want = [-1] * num_tokens
    for group, (start, end) in enumerate(bidirectional_spans(MaskRule.MEDIA, num_tokens, placed)):
        want[start:end] = [group] * (end - start)
    assert groups == want


def test_each_piece_of_a_picture_is_a_span():
    item = MediaIdentity("image", b"d" * 32, (1,), 7)
    placed = [MediaSpan(item, 3, b"p" * 32, ((0, 2), (2, 2), (6, 3)))]
    assert bidirectional_spans(MaskRule.MEDIA, 20, placed) == ((3, 7), (9, 12))


def test_a_prompt_or_nothing_is_one_span():
    placed = media([(2, 3)])
    assert bidirectional_spans(MaskRule.PROMPT, 9, placed) == ((0, 9),)
    assert bidirectional_spans(MaskRule.CAUSAL, 9, placed) == ()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(0, 5))
def test_text_reads_the_pictures_that_transformers_says(gaps: list[int], behind: int):
    """The fault: text that reads a picture it must not, at the borders of pictures above all."""
    placed = media([(gap, 1) for gap in gaps])
    num_tokens = placed[-1].end + behind
    token_ids = [0] * num_tokens
    for span in placed:
        token_ids[span.start] = PICTURE
    ranges = get_cross_attention_token_mask(token_ids, PICTURE)
    theirs = convert_sparse_cross_attention_mask_to_dense(
        [ranges], [[2] * len(placed)], max_num_tiles=4, length=num_tokens
    )[0]
    ours = np.zeros_like(theirs)
    for index, span in enumerate(cross_spans(placed)):
        ours[span.start : span.needed_until, index, :2] = 1
        # The answer goes on reading what the prompt's last token reads.
        assert (span.end is None) == bool(theirs[-1, index].any())
        assert (span.item.num_tokens, span.num_visible) == (8, 4)
    assert np.array_equal(ours, theirs)
