"""Softmax in torch, in fp32."""

from __future__ import annotations

import torch


def softmax(logits: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """fp32 probabilities [num_rows, size] of logits [num_rows, size] times `scale`.

    -inf hides an entry; a row that hides all of them becomes zeros.
    """
    scaled = logits.float() * scale
    return torch.softmax(scaled, -1).nan_to_num(nan=0.0) if scaled.numel() else scaled
