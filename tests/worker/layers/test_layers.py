"""Building blocks against transformers' own."""

from __future__ import annotations

import pytest
import torch
from chiasm_worker.layers.linear import Linear, PackedLinear, fuse
from chiasm_worker.layers.mlp import activation
from chiasm_worker.layers.norm import OffsetRMSNorm, RMSNorm
from chiasm_worker.layers.rope import (
    RotaryEmbedding,
    interleaved_axes,
    plain_axes,
    sectioned_axes,
)
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norm_rounds_as_transformers_does(dtype: torch.dtype):
    torch.manual_seed(0)
    theirs = LlamaRMSNorm(32, eps=1e-6).to(dtype)
    theirs.weight.data.normal_()
    x = torch.randn(5, 32, dtype=dtype)
    torch.testing.assert_close(
        RMSNorm(theirs.weight.data, 1e-6)(x), theirs(x).detach(), atol=1e-6, rtol=1e-6
    )


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("num_rows", [1, 3, 8, 33])
def test_a_weight_that_is_laid_out_for_the_cpu_makes_the_same_product(
    num_rows: int, has_bias: bool
):
    weight, rows = torch.randn(48, 80), torch.randn(2 * num_rows, 80)
    bias = torch.randn(48).bfloat16() if has_bias else None
    plain = Linear(weight.bfloat16(), bias)
    packed = plain.packed()
    assert isinstance(packed, PackedLinear)
    x = rows.bfloat16()[::2]  # not contiguous
    # Both sum in fp32, in another order, and round once to bfloat16's 8 bits.
    torch.testing.assert_close(packed(x), plain(x), atol=2e-2, rtol=2**-7)
    assert Linear(weight).packed().__class__ is Linear


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norm_around_one_rounds_as_transformers_does(dtype: torch.dtype):
    torch.manual_seed(0)
    theirs = Gemma3RMSNorm(32, eps=1e-6).to(dtype)
    theirs.weight.data.normal_()
    x = torch.randn(5, 32, dtype=dtype)
    for weight in (theirs.weight.data, theirs.weight.data.expand(5, -1)):
        torch.testing.assert_close(
            OffsetRMSNorm(weight, 1e-6)(x), theirs(x).detach(), atol=1e-6, rtol=1e-6
        )


def test_axes():
    assert plain_axes(3) == [0, 0, 0]
    assert sectioned_axes([1, 2, 1]) == [0, 1, 1, 2]
    assert interleaved_axes(8, [4, 2, 2]) == [0, 1, 2, 0, 1, 2, 0, 0]


def test_rotation_is_transformers_own():
    torch.manual_seed(0)
    inv_freq = torch.rand(4)
    rope = RotaryEmbedding(inv_freq, plain_axes(4), 1.0, torch.float32)
    positions = torch.tensor([[0, 3, 9]])
    x = torch.randn(3, 2, 8)
    angles = positions[0, :, None] * torch.cat((inv_freq, inv_freq))
    want, _ = apply_rotary_pos_emb(x, x, angles.cos(), angles.sin(), unsqueeze_dim=1)
    torch.testing.assert_close(rope.at(positions).apply(x), want)


def test_sections_must_fill_the_head():
    with pytest.raises(ValueError, match="name 3 frequencies; this head has 4"):
        RotaryEmbedding(torch.rand(4), [0, 1, 2], 1.0, torch.float32)


def test_fused_projections_are_the_parts_side_by_side():
    torch.manual_seed(0)
    parts = [Linear(torch.randn(n, 6), torch.randn(n)) for n in (3, 2)]
    x = torch.randn(4, 6)
    torch.testing.assert_close(fuse(parts)(x), torch.cat([part(x) for part in parts], dim=1))
    with pytest.raises(ValueError, match="with and without bias"):
        fuse([parts[0], Linear(torch.randn(2, 6))])


def test_an_unknown_activation_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'mish' is not known; known are.*'silu'"):
        activation("mish")
