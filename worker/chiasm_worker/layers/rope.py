"""Rotary positions: plain, sectioned (Qwen2-VL) and interleaved (Qwen3-VL) as one table look-up.

Each of the head_dim/2 frequencies follows one axis of the position ids; the three schemes differ
only in which frequency follows which axis. Frequencies come from transformers' own initialisers.

Must not know: how attention computes, caches, prompts.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from chiasm_worker.attention.heads import Rotation


def plain_axes(num_frequencies: int) -> list[int]:
    """Every frequency follows axis 0."""
    return [0] * num_frequencies


def sectioned_axes(sections: Sequence[int]) -> list[int]:
    """Qwen2-VL: the first section follows axis 0, the second axis 1, the third axis 2."""
    return [axis for axis, length in enumerate(sections) for _ in range(length)]


def interleaved_axes(num_frequencies: int, sections: Sequence[int]) -> list[int]:
    """Qwen3-VL: axes take turns 0 1 2 0 1 2 until axis 1 or 2 has had its share; the rest is 0."""
    axes = [0] * num_frequencies
    for axis in (1, 2):
        for i in range(axis, min(sections[axis] * 3, num_frequencies), 3):
            axes[i] = axis
    return axes


class RotaryEmbedding:
    """Frequencies of one decoder.

    Args:
        inv_freq: [head_dim / 2] fp32.
        axes: for each frequency the axis of position_ids that it follows.
        scaling: factor on cos and sin (YaRN's attention factor; 1 otherwise).
        dtype: what cos and sin are rounded to, as in transformers.
    """

    def __init__(
        self, inv_freq: torch.Tensor, axes: Sequence[int], scaling: float, dtype: torch.dtype
    ) -> None:
        if len(axes) != inv_freq.numel():
            raise ValueError(
                f"The rotary sections name {len(axes)} frequencies; this head has "
                f"{inv_freq.numel()}. The sections must add up to half of head_dim."
            )
        self._inv_freq = inv_freq.float()
        self._axes = torch.tensor(axes, device=inv_freq.device)
        self._scaling = scaling
        self._dtype = dtype

    def at(self, position_ids: torch.Tensor) -> Rotation:
        """The rotation of tokens at position_ids [num_axes, num_tokens]."""
        followed = position_ids.index_select(0, self._axes).float().t()
        angles = followed * self._inv_freq
        cos, sin = angles.cos() * self._scaling, angles.sin() * self._scaling
        return Rotation(
            cos=torch.cat((cos, cos), dim=-1).to(self._dtype)[:, None],
            sin=torch.cat((-sin, sin), dim=-1).to(self._dtype)[:, None],
        )
