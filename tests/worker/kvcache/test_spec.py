from __future__ import annotations

import pytest
from chiasm_contract.block_record import HEADER_BYTES, TRAILER_BYTES, align_up
from chiasm_worker.kvcache.spec import KVCacheSpec


def spec(**changes: int) -> KVCacheSpec:
    shape = {
        "num_layers": 2, "num_kv_heads": 2, "head_dim": 8, "block_size": 16, "dtype_bytes": 4,
    }  # fmt: skip
    return KVCacheSpec(**{**shape, **changes})


def test_a_block_holds_keys_and_values_of_all_layers():
    assert spec().kv_bytes == 2 * 2 * 16 * 2 * 8 * 4
    assert spec().record_bytes == HEADER_BYTES + spec().kv_bytes + TRAILER_BYTES


@pytest.mark.parametrize("head_dim", [1, 3, 8, 24, 80])
def test_every_part_starts_on_a_64_byte_border(head_dim: int):
    odd = spec(head_dim=head_dim, num_kv_heads=1, block_size=8, dtype_bytes=2)
    assert HEADER_BYTES % 64 == odd.payload_bytes % 64 == odd.record_bytes % 64 == 0
    assert odd.payload_bytes >= odd.kv_bytes


def test_budget_becomes_whole_blocks():
    record = spec().record_bytes
    assert spec().num_blocks(3 * record + record - 1) == 3
    with pytest.raises(ValueError, match=f"{record - 1} bytes holds no block of {record}"):
        spec().num_blocks(record - 1)


def test_counts_round_up():
    assert align_up(65) == 128
    payload = spec().payload_bytes
    assert [spec().blocks_for_bytes(n) for n in (1, payload, payload + 1)] == [1, 1, 2]


def test_an_empty_shape_is_refused_by_name():
    with pytest.raises(ValueError, match="num_layers is 0"):
        spec(num_layers=0)


def test_blocks_hold_whole_vectors_of_cross_attention():
    # 4096 bytes; a vector for one layer has 2 x 2 x 8 x 4 = 128.
    assert [spec().cross_vectors(layers) for layers in (1, 2, 3)] == [32, 16, 10]
    with pytest.raises(ValueError, match=r"K and V of one vector for 33 .* have 4224 bytes"):
        spec().cross_vectors(33)
