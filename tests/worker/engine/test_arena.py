from __future__ import annotations

import pytest
import torch
from chiasm_worker.engine.arena import Arena
from chiasm_worker.kvcache.spec import KVCacheSpec
from hypothesis import given
from hypothesis import strategies as st

SPEC = KVCacheSpec(num_layers=2, num_kv_heads=1, head_dim=4, block_size=8, dtype_bytes=4)


def test_a_block_is_one_contiguous_record_with_zero_borders():
    arena = Arena(SPEC, 3, torch.float32, torch.device("cpu"))
    arena.kv[1] = 1.0
    records = arena._records
    assert records.shape == (3, SPEC.record_bytes)
    assert records[0].count_nonzero() == records[2].count_nonzero() == 0
    payload = records[1, 128 : 128 + SPEC.kv_bytes].view(torch.float32)
    assert torch.equal(payload, torch.ones(2 * 2 * 8 * 4))
    assert (
        records[1, :128].count_nonzero() == records[1, 128 + SPEC.payload_bytes :].count_nonzero()
    )


def test_an_encoder_output_comes_back_as_it_was():
    arena = Arena(SPEC, 5, torch.float32, torch.device("cpu"))
    features = torch.randn(11, 24)
    block_ids = (4, 0, 2)
    assert SPEC.blocks_for_bytes(features.numel() * 4) == len(block_ids)
    arena.write_media(block_ids, features)
    assert torch.equal(arena.read_media(block_ids, 0, 11, 24), features)
    assert arena._records[[1, 3]].count_nonzero() == 0


@pytest.mark.parametrize("width", [3, 24, 100, 300])
@given(data=st.data())
def test_only_the_blocks_that_hold_the_wanted_rows_are_read(width: int, data: st.DataObject):
    """The fault: each chunk of a prompt copies the whole output of a picture that it touches."""
    num_rows = data.draw(st.integers(1, 12))
    num_bytes = num_rows * width * 4
    num_blocks = SPEC.blocks_for_bytes(num_bytes)
    arena = Arena(SPEC, num_blocks + 2, torch.float32, torch.device("cpu"))
    block_ids = data.draw(st.permutations(range(num_blocks + 2)))[:num_blocks]
    features = torch.arange(num_rows * width, dtype=torch.float32).view(num_rows, width)
    arena.write_media(block_ids, features)
    first = data.draw(st.integers(0, num_rows - 1))
    length = data.draw(st.integers(1, num_rows - first))
    rows = arena.read_media(block_ids, first, length, width)
    assert torch.equal(rows, features[first : first + length])
    # The rows, and at both ends less than a block.
    assert rows.untyped_storage().nbytes() < rows.nbytes + 2 * SPEC.payload_bytes


def test_cross_attention_vectors_lie_where_attention_reads_them():
    # 3 layers' K and V of 4 numbers: a block of 512 bytes holds 5 vectors.
    arena = Arena(SPEC, 4, torch.float32, torch.device("cpu"), num_cross_layers=3)
    assert arena.cross is not None
    assert arena.cross.shape == (4, 3, 2, 5, 1, 4)
    features = torch.randn(7, 3 * 2 * 4)
    arena.write_media((2, 1), features)
    vectors = features.view(7, 3, 2, 1, 4)
    for i in range(7):
        assert torch.equal(arena.cross[(2, 1)[i // 5], :, :, i % 5], vectors[i])
    assert arena._records[[0, 3]].count_nonzero() == 0
