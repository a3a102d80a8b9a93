"""Patch embeddings as one matrix product.

A vision tower cuts a picture into patches that do not overlap and multiplies each by one matrix.
transformers write that as a convolution whose stride is its kernel; oneDNN's bfloat16 convolution
takes 80 times as long for it on AMX cores (Qwen2.5-VL, 576 patches of 14 x 14: 78 ms against 0.9),
and twice to eight times as long in fp32.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import nn


class PatchProjection(nn.Module):
    """The convolution `conv` with kernel = stride, for inputs of any size.

    Shares its weight and bias, under their names, so that digests and dtype checks see no
    difference.
    """

    def __init__(self, conv: nn.Conv2d | nn.Conv3d) -> None:
        super().__init__()
        self.weight = conv.weight
        self.bias = conv.bias
        self.kernel_size = conv.kernel_size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[num_items, channels, *sizes] -> [num_items, out_channels, *(size // kernel)].

        What lies beyond the last whole patch is left out, as the convolution does.
        """
        num_items, num_channels = x.shape[:2]
        counts = [size // width for size, width in zip(x.shape[2:], self.kernel_size, strict=True)]
        for axis, (count, width) in enumerate(zip(counts, self.kernel_size, strict=True), start=2):
            x = x.narrow(axis, 0, count * width)
        split = [n for pair in zip(counts, self.kernel_size, strict=True) for n in pair]
        x = x.reshape(num_items, num_channels, *split)
        num_axes = len(counts)
        places = [2 + 2 * axis for axis in range(num_axes)]
        within = [3 + 2 * axis for axis in range(num_axes)]
        # -> [num_items, *counts, channels, *kernel], the weight's own order behind the places
        rows = x.permute(0, *places, 1, *within).flatten(1 + num_axes)
        return F.linear(rows, self.weight.flatten(1), self.bias).movedim(-1, 1)


def with_patch_projections(model: nn.Module) -> nn.Module:
    """`model`, in place, with each convolution over separate patches as a PatchProjection."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Conv2d | nn.Conv3d) and _cuts_patches(child):
                setattr(parent, name, PatchProjection(child))
    return model


def _cuts_patches(conv: nn.Conv2d | nn.Conv3d) -> bool:
    return (
        conv.stride == conv.kernel_size
        and conv.groups == 1
        and set(conv.dilation) == {1}
        and (conv.padding == "valid" or set(conv.padding) == {0})
    )
