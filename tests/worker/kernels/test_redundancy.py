"""What redundancy of blocks means, on the plain formula that the kernel is held to."""

from __future__ import annotations

import torch
from chiasm_worker.kernels.redundancy.reference import redundancy
from hypothesis import given
from hypothesis import strategies as st

SIZE, NUM_HEADS, HEAD_DIM = 4, 2, 6


def measured(kv: torch.Tensor, length: int) -> torch.Tensor:
    """R of one sequence whose blocks lie in order; kv [num_blocks, 2, SIZE, heads, head_dim]."""
    table = torch.arange(len(kv), dtype=torch.int32)[None]
    return redundancy(kv, table, torch.tensor([length], dtype=torch.int32))[0]


def drawn(seed: int, num_blocks: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_blocks, 2, SIZE, NUM_HEADS, HEAD_DIM, generator=generator)


seeds = st.integers(0, 2**31 - 1)


@given(seeds, st.integers(1, 5), st.integers(1, SIZE))
def test_it_is_a_share_and_beyond_the_end_nothing(seed: int, blocks: int, last: int) -> None:
    share = measured(drawn(seed, blocks + 1), (blocks - 1) * SIZE + last)
    assert ((share >= 0) & (share <= 1)).all()
    assert (share[blocks:] == 0).all()


@given(seeds)
def test_what_all_tokens_share_does_not_count(seed: int) -> None:
    kv = drawn(seed, 3)
    moved = 3.0 * kv + drawn(seed + 1, 1)[:, :, :1]
    torch.testing.assert_close(measured(moved, 12), measured(kv, 12), atol=1e-5, rtol=0)


@given(seeds)
def test_equal_tokens_are_redundant_and_varied_ones_are_not(seed: int) -> None:
    kv = drawn(seed, 3)
    kv[1] = kv[1, :, :1]
    share = measured(kv, 12)
    assert (share[1] == 1).all()
    assert (share[[0, 2]] < 1).all()


@given(seeds)
def test_both_k_and_v_must_be_alike(seed: int) -> None:
    kv = drawn(seed, 3)
    kv[1, 0] = kv[1, 0, :1]
    assert (measured(kv, 12)[1] < 1).all()


def test_a_sequence_of_equal_tokens_is_redundant_everywhere() -> None:
    kv = drawn(0, 1)[:, :, :1].expand(3, 2, SIZE, NUM_HEADS, HEAD_DIM)
    assert (measured(kv, 12) == 1).all()


def test_a_block_of_one_token_frees_nothing() -> None:
    assert (measured(drawn(0, 2), SIZE + 1)[1] == 0).all()
