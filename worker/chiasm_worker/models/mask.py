"""Which tokens of a prompt see those behind them, from a family's rule and the media's places.

Must not know: attention, chunks, batches.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from chiasm_worker.kvcache.prefix_cache import MediaSpan


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
