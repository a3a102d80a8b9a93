"""What may and what may not be taken from the cache."""

from __future__ import annotations

from dataclasses import replace

import pytest
from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.prefix_cache import (
    CacheScope,
    ContentChain,
    MediaRun,
    cross_root,
    find_prefix,
    media_contents,
    media_runs,
    root_key,
)
from chiasm_worker.media_identity import Compression, CrossSpan, MediaIdentity, MediaSpan
from hypothesis import given
from hypothesis import strategies as st

ROOT = CacheScope.within(root_key("a" * 64, "b" * 64), "c" * 64).root
ITEM = MediaIdentity("image", b"d" * 32, (1, 4, 4), 6)
SPAN = MediaSpan(ITEM, 3, b"p" * 32)
TOKENS = list(range(20))


def filled(tokens: list[int], spans: tuple[MediaSpan, ...] = (), root: bytes = ROOT) -> BlockPool:
    """A pool of blocks of 4 that holds the full blocks of `tokens` in blocks 0, 1, ..."""
    pool = BlockPool(8)
    chain = ContentChain(root, 4, spans)
    count = len(tokens) // 4
    assert pool.allocate(count) == list(range(count))
    for index in range(count):
        content = chain.content(index, tokens)
        pool.commit(index, content.key, content)
    return pool


def hits(
    pool: BlockPool, tokens: list[int], spans: tuple[MediaSpan, ...] = (), root: bytes = ROOT
) -> list[int]:
    return find_prefix(pool, ContentChain(root, 4, spans), tokens)


def test_the_longest_common_run_of_blocks_is_found():
    pool = filled(TOKENS)
    assert hits(pool, TOKENS) == [0, 1, 2, 3]
    assert hits(pool, [*TOKENS[:9], 99, *TOKENS[10:]]) == [0, 1]
    assert hits(pool, [99, *TOKENS[1:]]) == []


def test_the_last_token_is_always_computed():
    pool = filled(TOKENS)
    assert hits(pool, TOKENS[:16]) == [0, 1, 2]
    assert hits(pool, TOKENS[:17]) == [0, 1, 2, 3]
    assert hits(pool, TOKENS[:1]) == []


def test_runs_say_which_part_of_a_picture_a_block_holds():
    assert media_runs((SPAN,), 0, 4) == (MediaRun(ITEM, 3, 0, 1, b"p" * 32),)
    assert media_runs((SPAN,), 4, 8) == (MediaRun(ITEM, 0, 1, 4, b"p" * 32),)
    assert media_runs((SPAN,), 8, 12) == (MediaRun(ITEM, 0, 5, 1, b"p" * 32),)
    assert media_runs((SPAN,), 12, 16) == ()


@pytest.mark.parametrize(
    "other",
    [
        replace(SPAN, item=replace(ITEM, digest=b"e" * 32)),
        replace(SPAN, item=replace(ITEM, grid=(1, 8, 2))),
        replace(SPAN, item=replace(ITEM, compression=Compression("mean", 1, 4, (1, 6, 4), (2, 2)))),
        replace(SPAN, item=replace(ITEM, modality="video")),
        replace(SPAN, start=2),
        replace(SPAN, position_digest=b"q" * 32),
    ],
    ids=["pixels", "grid", "compression", "modality", "place", "positions"],
)
def test_another_picture_behind_the_same_tokens_is_a_miss(other: MediaSpan):
    pool = filled(TOKENS, (SPAN,))
    assert hits(pool, TOKENS, (SPAN,)) == [0, 1, 2, 3]
    assert hits(pool, TOKENS, (other,)) == []
    assert hits(pool, TOKENS) == []


def test_other_separators_behind_the_same_tokens_are_a_miss():
    other = replace(SPAN, runs=((0, 2), (4, 4)))
    # Block 0 holds the item's first row either way.
    assert hits(filled(TOKENS, (SPAN,)), TOKENS, (other,)) == [0]


@pytest.mark.parametrize("field", [0, 1, 2], ids=["compute", "repr", "scope"])
def test_another_fingerprint_shares_nothing(field: int):
    parts = ["a" * 64, "b" * 64, "c" * 64]
    parts[field] = "f" * 64
    compute, representation, scope = parts
    root = CacheScope.within(root_key(compute, representation), scope).root
    assert hits(filled(TOKENS), TOKENS, root=root) == []


def test_a_picture_later_in_the_prompt_leaves_the_blocks_before_it_alone():
    late = replace(SPAN, start=9)
    assert hits(filled(TOKENS, (late,)), TOKENS) == [0, 1]


@pytest.mark.parametrize(
    ("modalities", "whole"),
    [
        ((), "text"),
        (("video",), "video"),
        (("audio", "audio"), "audio"),
        (("image", "audio"), "mixed"),
    ],
)
def test_a_block_is_whole_of_the_modality_of_its_media(modalities: tuple[str, ...], whole: str):
    spans = tuple(
        MediaSpan(replace(ITEM, modality=modality, num_tokens=1), 4 + index, b"p" * 32)
        for index, modality in enumerate(modalities)
    )
    chain = ContentChain(ROOT, 4, spans)
    assert [chain.content(i, TOKENS).rebuild.modality for i in range(3)] == ["text", whole, "text"]


def test_encoder_outputs_are_found_by_picture_not_by_place():
    first = media_contents(ROOT, ITEM, 2)
    assert first == media_contents(ROOT, ITEM, 2)
    keys = {content.key for content in first}
    for other in (replace(ITEM, digest=b"e" * 32), replace(ITEM, grid=(1, 2, 8))):
        assert keys.isdisjoint(content.key for content in media_contents(ROOT, other, 2))
    assert keys.isdisjoint(content.key for content in media_contents(b"x" * 32, ITEM, 2))


def seen_together(*spans: tuple[int, int], media: tuple[MediaSpan, ...] = ()) -> ContentChain:
    return ContentChain(ROOT, 4, media, spans)


def test_what_follows_in_a_span_is_part_of_its_first_block():
    """The fault: a block of a prompt that sees itself is taken for one of another prompt."""
    chain = seen_together((2, 11))
    for place, shared in ((1, 0), (6, 0), (10, 0), (11, 2), (12, 3)):
        other = [*TOKENS[:place], 99, *TOKENS[place + 1 :]]
        first, second = (
            [seen_together((2, 11)).content(i, tokens).key for i in range(4)]
            for tokens in (TOKENS, other)
        )
        assert [a == b for a, b in zip(first, second, strict=True)].count(True) == shared
    assert chain.content(0, TOKENS) != ContentChain(ROOT, 4, ()).content(0, TOKENS)


def test_a_span_that_begins_later_leaves_the_blocks_before_it_alone():
    plain, later = ContentChain(ROOT, 4, ()), seen_together((9, 15))
    same = [plain.content(i, TOKENS) == later.content(i, TOKENS) for i in range(4)]
    assert same == [True, True, False, False]


def test_another_picture_behind_in_the_span_is_another_block():
    late = replace(SPAN, start=9)
    other = replace(late, item=replace(ITEM, digest=b"e" * 32))
    contents = [seen_together((0, 18), media=(span,)).content(0, TOKENS) for span in (late, other)]
    assert contents[0].key != contents[1].key


def test_pictures_read_by_cross_attention_count_for_every_block():
    """The fault: a block before all pictures is shared between prompts with other pictures."""
    other = replace(ITEM, digest=b"e" * 32)
    one, two = CrossSpan(ITEM, 9, None, 6), CrossSpan(other, 12, None, 6)
    roots = [
        cross_root(ROOT, cross)
        for cross in ((), (one,), (two,), (one, two), (two, one), (replace(one, num_visible=3),))
    ]
    assert roots[0] == ROOT
    assert len(set(roots)) == len(roots)


SEQUENCES = st.lists(st.integers(0, 2), min_size=1, max_size=14)


@given(SEQUENCES, SEQUENCES)
def test_hits_are_exactly_the_common_full_blocks(first: list[int], second: list[int]):
    common = 0
    while first[common * 4 : common * 4 + 4] == second[common * 4 : common * 4 + 4] and (
        common * 4 + 4 <= min(len(first), len(second) - 1)
    ):
        common += 1
    assert hits(filled(first), second) == list(range(common))


RUNS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=4)


@given(st.lists(st.tuples(st.integers(0, 40), RUNS), max_size=3), st.integers(1, 8))
def test_runs_cover_every_media_token_once(
    places: list[tuple[int, list[tuple[int, int]]]], block_size: int
):
    spans: list[MediaSpan] = []
    expected, at = [], 0
    for gap, pieces in places:
        start, runs, row = at + gap, [], 0
        offset = -pieces[0][0]  # A span begins with its first encoder token.
        for separators, length in pieces:
            offset += separators
            runs.append((offset, length))
            expected += [(start + offset + i, row + i) for i in range(length)]
            offset, row = offset + length, row + length
        item = replace(ITEM, num_tokens=row)
        spans.append(MediaSpan(item, start, b"p" * 32, tuple(runs)))
        at = spans[-1].end
        assert at == expected[-1][0] + 1
    covered = [
        (block * block_size + run.offset_in_block + i, run.offset_in_item + i)
        for block in range(at // block_size + 1)
        for run in media_runs(spans, block * block_size, (block + 1) * block_size)
        for i in range(run.length)
    ]
    assert covered == expected
