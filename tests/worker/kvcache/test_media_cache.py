"""An encoder output is written once, shared, findable afterwards, and whole or gone."""

from __future__ import annotations

import pytest
from chiasm_contract.errors import InvariantError
from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.media_cache import MediaCache
from chiasm_worker.kvcache.rebuild_cost import BlockKind
from chiasm_worker.kvcache.spec import KVCacheSpec
from chiasm_worker.media_identity import MediaIdentity

SPEC = KVCacheSpec(num_layers=1, num_kv_heads=1, head_dim=8, block_size=8, dtype_bytes=4)
ITEM = MediaIdentity("image", b"d" * 32, (1, 4, 4), 10)
OTHER = MediaIdentity("image", b"e" * 32, (1, 4, 4), 10)
ROOT = b"r" * 32
BYTES_PER_TOKEN = 128  # 10 tokens need 1280 bytes, a payload has 512: 3 blocks


def cache(num_blocks: int) -> tuple[MediaCache, BlockPool]:
    pool = BlockPool(num_blocks)
    return MediaCache(pool, SPEC, BYTES_PER_TOKEN), pool


def test_the_second_reader_shares_the_first_ones_blocks():
    media, pool = cache(4)
    first, second = media.acquire(ROOT, ITEM), media.acquire(ROOT, ITEM)
    assert first is not None
    assert second is not None
    assert (first.block_ids, first.is_new) == ((0, 1, 2), True)
    assert (second.block_ids, second.is_new) == ((0, 1, 2), False)
    media.release(first)
    assert pool.num_used == 3
    media.release(second)
    assert (pool.num_free, pool.num_cached, pool.num_used) == (1, 3, 0)


def test_a_cached_output_is_found_again():
    media, _ = cache(3)
    first = media.acquire(ROOT, ITEM)
    assert first is not None
    media.release(first)
    again = media.acquire(ROOT, ITEM)
    assert again is not None
    assert not again.is_new


def test_under_another_root_nothing_is_found():
    media, pool = cache(6)
    first = media.acquire(ROOT, ITEM)
    assert first is not None
    assert not media.contains(b"s" * 32, ITEM)
    other = media.acquire(b"s" * 32, ITEM)
    assert other is not None
    assert other.is_new
    assert not set(first.block_ids) & set(other.block_ids)
    pool.check()


def test_no_room_leaves_no_trace():
    media, pool = cache(5)
    assert media.acquire(ROOT, ITEM) is not None
    assert media.acquire(ROOT, OTHER) is None
    pool.check()
    assert (pool.num_free, pool.num_used) == (2, 3)


def test_an_output_is_given_up_whole():
    media, pool = cache(4)
    first = media.acquire(ROOT, ITEM)
    assert first is not None
    media.release(first)
    assert pool.allocate(2) == [3, 0]
    assert (pool.num_free, pool.num_cached) == (2, 0)
    assert pool.num_evictions == {BlockKind.ENCODER_OUTPUT: 3}
    assert not media.contains(ROOT, ITEM)


def test_a_handle_that_outlived_its_content_is_noticed():
    media, pool = cache(3)
    first = media.acquire(ROOT, ITEM)
    assert first is not None
    media.release(first)
    media.check(first)
    pool.allocate(1)
    with pytest.raises(InvariantError, match="of generations"):
        media.check(first)


def test_what_was_never_written_is_not_found():
    media, pool = cache(3)
    first = media.acquire(ROOT, ITEM)
    assert first is not None
    media.take_back(first)
    assert (pool.num_free, pool.num_cached) == (3, 0)
    again = media.acquire(ROOT, ITEM)
    assert again is not None
    assert again.is_new
