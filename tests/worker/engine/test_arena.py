from __future__ import annotations

import torch
from chiasm_worker.engine.arena import Arena
from chiasm_worker.kvcache.spec import KVCacheSpec

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
    assert torch.equal(arena.read_media(block_ids, 11, 24), features)
    assert arena._records[[1, 3]].count_nonzero() == 0


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
