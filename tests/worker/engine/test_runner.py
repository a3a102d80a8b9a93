"""What the model is told of a chunk: positions, spans and items, counted as in the prompt."""

from __future__ import annotations

import numpy as np
import pytest
from chiasm_worker.engine.runner import _positions, _sequence_chunk
from chiasm_worker.kvcache.block_table import BlockTable
from chiasm_worker.kvcache.media_cache import MediaHandle
from chiasm_worker.kvcache.prefix_cache import CacheScope, ContentChain
from chiasm_worker.media_identity import CrossSpan, MediaIdentity
from chiasm_worker.request import Prompt, Request, SamplingParams
from chiasm_worker.sched.batch import Chunk
from hypothesis import given
from hypothesis import strategies as st

NUM_PROMPT = 20
# Three axes; a picture of 2 x 3 tokens from token 4 on, after which positions fall behind tokens.
POSITIONS = np.concatenate(
    [
        np.broadcast_to(np.arange(4), (3, 4)),
        np.indices((1, 2, 3)).reshape(3, -1) + 4,
        np.broadcast_to(np.arange(7, 17), (3, 10)),
    ],
    axis=1,
)
ROOT = b"r" * 32
SCOPE = CacheScope("a" * 64, ROOT)
SPANS = ((2, 5), (9, 14))
PICTURE = MediaIdentity("image", b"d" * 32, (1, 8, 6), 8)
CROSS = (CrossSpan(PICTURE, 3, 10, 6), CrossSpan(PICTURE, 10, None, 4))


def request(num_output: int = 0) -> Request:
    prompt = Prompt(tuple(range(NUM_PROMPT)), (), POSITIONS, SPANS, CROSS)
    made = Request(
        "a", prompt, SamplingParams(50), SCOPE, ContentChain(ROOT, 4, ()), BlockTable(4, [5, 6, 7])
    )
    made.token_ids += [7] * num_output
    made.media = {i: MediaHandle(PICTURE, (i, i + 1), is_new=False) for i in range(2)}
    return made


def chunk(of: Request, start: int, end: int) -> Chunk:
    return Chunk(of, start, end - start, samples=end == len(of.token_ids))


@given(st.integers(0, 30), st.integers(1, 30))
def test_any_chunk_has_its_part_of_one_position_table(start: int, length: int):
    """The faults: positions sliced or continued by chunk, or by tokens where pictures take fewer.

    Whatever came before - chunks, a prefix hit, a preemption - the positions of tokens
    start..end-1 are those, and the answer goes on one behind the prompt's largest.
    """
    whole = np.concatenate([POSITIONS, np.broadcast_to(np.arange(17, 60), (3, 43))], axis=1)
    seen = _positions(chunk(request(43), start, start + length))
    assert np.array_equal(seen, whole[:, start : start + length])


@pytest.mark.parametrize(
    ("start", "end", "spans"),
    [(0, 5, SPANS[:1]), (5, 9, ()), (8, 20, SPANS[1:]), (0, 20, SPANS), (14, 20, ())],
)
def test_spans_are_counted_from_the_prompts_first_token(
    start: int, end: int, spans: tuple[tuple[int, int], ...]
):
    """The fault: after a prefix hit or a first chunk, ranges of pictures in other coordinates."""
    made = _sequence_chunk(chunk(request(), start, end))
    assert (made.num_computed_tokens, made.num_new_tokens, made.bidirectional) == (
        start, end - start, spans,
    )  # fmt: skip


def test_items_are_handed_over_as_long_as_a_token_reads_them():
    def read(start: int, end: int) -> list[tuple[int, int, int]]:
        made = _sequence_chunk(chunk(request(8), start, end))
        assert all(source.num_vectors == 8 for source in made.cross)
        return [(source.block_ids[0], source.start, source.num_visible) for source in made.cross]

    assert read(0, 2) == [(0, 3, 6), (1, 10, 4)]
    assert read(9, 14) == [(0, 3, 6), (1, 10, 4)]
    assert read(14, 16) == read(24, 25) == [(1, 10, 4)]
