"""Which tokens of a prompt see those behind them, from a family's rule and the media's places.

Must not know: attention, chunks, batches.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import replace

from chiasm_worker.media_identity import CrossSpan, MediaSpan


class MaskRule(enum.Enum):
    """Which tokens see those behind them, and how media are read.

    CAUSAL: none do. MEDIA: the tokens of one picture see one another. PROMPT: all tokens of the
    prompt do. CROSS: text is causal and reads media by cross-attention.
    """

    CAUSAL = "causal"
    MEDIA = "media"
    PROMPT = "prompt"
    CROSS = "cross"


def bidirectional_spans(
    rule: MaskRule, num_tokens: int, media: Sequence[MediaSpan]
) -> tuple[tuple[int, int], ...]:
    """(start, end) of the tokens that see one another, in order and disjoint."""
    if rule is MaskRule.PROMPT:
        return ((0, num_tokens),)
    if rule is not MaskRule.MEDIA:
        return ()
    spans: list[tuple[int, int]] = []
    for item in media:
        for offset, length in item.runs:
            start = item.start + offset
            # Pictures that touch are one to transformers, which looks for runs of picture tokens.
            if spans and spans[-1][1] == start:
                start = spans.pop()[0]
            spans.append((start, item.start + offset + length))
    return tuple(spans)


def cross_spans(media: Sequence[MediaSpan]) -> tuple[CrossSpan, ...]:
    """Which tokens read each item by cross-attention, as transformers' Mllama processor has it.

    An item is read up to the next one, and items that stand side by side are read together. What
    the prompt's last token reads the answer reads, too.

    Args:
        media: items of one text token each, whose grid is (.., num_vectors, num_visible).
    """
    spans: list[CrossSpan] = []
    end: int | None = None
    following: int | None = None
    for item in reversed(media):
        _, num_vectors, num_visible = item.item.grid
        if following is not None and following != item.start + 1:
            end = following
        vectors = replace(item.item, num_tokens=num_vectors)
        spans.append(CrossSpan(vectors, item.start, end, num_visible))
        following = item.start
    return tuple(reversed(spans))
