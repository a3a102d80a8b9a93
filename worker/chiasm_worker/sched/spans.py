"""Where a chunk and a prefix hit may end, when tokens of one span see one another.

Causal tokens may be computed in any number of chunks. In a bidirectional span each token needs
those behind it, so a span is computed in one chunk: the chunk ends before it, or grows to hold it
whole. For the same reason what is found in the cache may not end inside a span.

Spans are (start, end) in tokens of the request, in order and disjoint.

Must not know: requests, blocks' contents, torch.
"""

from __future__ import annotations

from collections.abc import Sequence

Span = tuple[int, int]


def chunk_end(start: int, end: int, spans: Sequence[Span]) -> int:
    """Where a chunk of the tokens start..end-1 ends at best: never inside a span.

    Args:
        start: not inside a span.

    Returns: `end`, the start of a span that `end` would cut, or the end of a span that begins at
    `start`: the only case in which more than end - start tokens are to be computed.
    """
    for first, last in spans:
        if first < end < last:
            return first if first > start else last
    return end


def whole_prefix_blocks(num_blocks: int, block_size: int, spans: Sequence[Span]) -> int:
    """How many of the found blocks may be used, so that they do not end inside a span."""
    for first, last in reversed(spans):
        if first < num_blocks * block_size < last:
            num_blocks = first // block_size
    return num_blocks


def needed_together(needs: Sequence[Span], spans: Sequence[Span]) -> list[list[int]]:
    """Which of `needs` one chunk must have at the same time, however short chunks are cut.

    Args:
        needs: (first token, first token after) that reads each media item.
    """
    whole = [(first, last) for first, last in spans if first < last]
    smallest = [(first, first + 1) for first, _ in needs] + whole
    chunks = [
        next((span for span in whole if span[0] <= first < span[1]), (first, last))
        for first, last in smallest
    ]
    return [
        [i for i, (first, last) in enumerate(needs) if first < end and last > start]
        for start, end in sorted(set(chunks))
    ]
