"""Who makes a decoder's operations, what is left to torch, and torch's own beside plain words."""

from __future__ import annotations

import re

import pytest
import torch
from chiasm_worker.attention.choose import Choice
from chiasm_worker.kernels.quantised_linear.packed import pack
from chiasm_worker.layers import mlp
from chiasm_worker.layers.linear import Linear, QuantisedLinear
from chiasm_worker.layers.norm import HeadRMSNorm, OffsetRMSNorm, RMSNorm
from chiasm_worker.layers.operations import TorchOperations, operations_of
from chiasm_worker.layers.triton_operations import TritonNorm, TritonOperations

BF16 = torch.bfloat16
TRITON = Choice("triton", "a test says so")


def test_the_choice_decides() -> None:
    torchs = operations_of(Choice("torch", ""), BF16)
    assert isinstance(torchs, TorchOperations)
    assert isinstance(torchs.norm(torch.ones(8), 1e-6, offset=False), RMSNorm)
    assert isinstance(torchs.norm(torch.ones(8), 1e-6, offset=True), OffsetRMSNorm)
    tritons = operations_of(TRITON, BF16)
    assert isinstance(tritons.norm(torch.ones(8, dtype=BF16), 1e-6, offset=False), TritonNorm)
    assert list(torchs.exceptions) == list(tritons.exceptions) == []


def test_packed_weights_are_found_by_their_projections_names() -> None:
    packed = pack(torch.ones((3, 64), dtype=torch.int8), torch.ones((3, 1)), None, 8, 0)
    operations, bias = operations_of(TRITON, BF16, {"layers.0.mlp.up_proj": packed}), torch.ones(3)
    quantised = operations.linear("layers.0.mlp.up_proj", torch.empty(0), bias)
    assert isinstance(quantised, QuantisedLinear)
    assert quantised.weight is packed
    assert quantised.bias is bias
    weight = torch.ones(3, 64)
    for other in (operations, TorchOperations()):
        plain = other.linear("layers.1.mlp.up_proj", weight, None)
        assert isinstance(plain, Linear)
        assert plain.weight is weight
        assert plain.bias is None


@pytest.mark.parametrize(
    ("weight", "why"),
    [
        (torch.ones(32769, dtype=BF16), "norms of 32769 numbers are torch's: .* up to 32768"),
        (torch.ones(64), "weights in torch.float32 are torch's: .* the model's torch.bfloat16"),
    ],
)
def test_a_norm_that_the_kernel_does_not_take_is_torchs(weight: torch.Tensor, why: str) -> None:
    """The fault: it is found out at a launch, in the middle of an answer."""
    operations = TritonOperations(BF16)
    for _ in range(3):
        assert isinstance(operations.norm(weight, 1e-6, offset=False), RMSNorm)
    [said] = operations.exceptions
    assert re.search(why, said)


def test_an_activation_that_the_kernel_lacks_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mlp.ACTIVATIONS, "mish", torch.nn.functional.mish)
    operations = TritonOperations(BF16)
    x = torch.randn(3, 10)
    wanted = torch.nn.functional.mish(x[:, :5]) * x[:, 5:]
    assert torch.equal(operations.gated("mish")(x), wanted)
    assert operations.exceptions[0].startswith("activation 'mish' is torch's: the kernel has")


@pytest.mark.parametrize("name", sorted(mlp.ACTIVATIONS))
def test_every_activation_of_a_known_model_has_a_kernel(name: str) -> None:
    operations = TritonOperations(BF16)
    operations.gated(name)
    assert not operations.exceptions


def test_an_unknown_activation_is_refused_by_both() -> None:
    for operations in (TorchOperations(), TritonOperations(BF16)):
        with pytest.raises(ValueError, match="'softsign' is not known"):
            operations.gated("softsign")


@pytest.mark.parametrize("offset", [False, True])
def test_a_sum_is_rounded_before_it_is_normalised(offset: bool) -> None:
    torch.manual_seed(0)
    norm = TorchOperations().norm(torch.randn(32, dtype=BF16), 1e-6, offset=offset)
    x, residual = (torch.randn(5, 32, dtype=BF16) for _ in range(2))
    normed, summed = norm.add(x, residual)
    assert torch.equal(summed, residual + x)
    assert torch.equal(normed, norm(residual + x))
    normed, summed = norm.add(None, residual)
    assert torch.equal(summed, residual)
    assert torch.equal(normed, norm(residual))


@pytest.mark.parametrize("offset", [False, True])
def test_each_head_has_its_kinds_weight(offset: bool) -> None:
    torch.manual_seed(0)
    q, k = torch.randn(16), torch.randn(16)
    qk = torch.randn(3, 5, 16)
    kind = OffsetRMSNorm if offset else RMSNorm
    normed = HeadRMSNorm(q, k, 3, 2, 1e-6, offset=offset)(qk)
    torch.testing.assert_close(normed[:, :3], kind(q, 1e-6)(qk[:, :3]))
    torch.testing.assert_close(normed[:, 3:], kind(k, 1e-6)(qk[:, 3:]))
