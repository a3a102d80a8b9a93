"""A patch embedding gives the numbers of the convolution that it stands for."""

from __future__ import annotations

import pytest
import torch
from chiasm_worker.layers.patches import PatchProjection, with_patch_projections
from torch import nn


@pytest.mark.parametrize(
    ("conv", "shape"),
    [
        (nn.Conv3d(3, 16, (2, 7, 7), (2, 7, 7), bias=False), (5, 3, 2, 7, 7)),
        (nn.Conv3d(3, 16, (2, 4, 6), (2, 4, 6)), (2, 3, 5, 9, 13)),
        (nn.Conv2d(3, 16, 4, 4, padding="valid"), (2, 3, 12, 8)),
        (nn.Conv2d(3, 16, 4, 4), (1, 3, 15, 11)),
        (nn.Conv2d(3, 16, 4, 4, padding=0), (1, 3, 4, 4)),
    ],
)
def test_equal_to_the_convolution(conv: nn.Conv2d | nn.Conv3d, shape: tuple[int, ...]) -> None:
    # Noncontiguous, as slices of a batch are; doubles, so that any difference is a wrong sum.
    x = torch.randn(*shape[:2], *(2 * size for size in shape[2:]), dtype=torch.float64)
    x = x[(slice(None), slice(None), *(slice(0, size) for size in shape[2:]))]
    expected = conv.double()(x)
    found = PatchProjection(conv)(x)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_only_convolutions_over_separate_patches_are_replaced() -> None:
    kept = [
        nn.Conv2d(4, 4, 4, 2),
        nn.Conv2d(4, 4, 4, 4, padding=1),
        nn.Conv2d(4, 4, 4, 4, groups=2),
        nn.Conv2d(4, 4, 4, 4, dilation=2),
        nn.Conv2d(4, 4, 4, padding="same"),
        nn.Conv1d(4, 4, 4, 4),
    ]
    model = nn.Sequential(*kept, nn.Sequential(nn.Conv2d(4, 4, 4, 4)))
    names = [name for name, _ in model.named_parameters()]
    assert with_patch_projections(model) is model
    assert list(model)[:-1] == kept
    assert type(model[-1][0]) is PatchProjection
    assert [name for name, _ in model.named_parameters()] == names
