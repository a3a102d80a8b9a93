"""The mean of windows in torch; models/compressor.py's MeanPool."""

from __future__ import annotations

import torch


def window_mean(features: torch.Tensor, windows: torch.Tensor) -> torch.Tensor:
    """[num_windows, width], each the mean of the tokens it holds, in the features' type.

    Args:
        features: [num_tokens, width].
        windows: [num_windows, tokens of a whole window] int32; -1 lies beyond the grid's edge.
    """
    inside = (windows >= 0).unsqueeze(2)
    sums = (features.float()[windows.long().clamp(min=0)] * inside).sum(dim=1)
    return (sums / inside.sum(dim=1)).to(features.dtype)
