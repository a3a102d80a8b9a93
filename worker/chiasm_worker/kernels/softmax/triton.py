"""Softmax of rows of any length, two passes over each; see README.md."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from chiasm_worker.kernels.launch import architecture, configuration

# Below every finite logit, and finite: the difference of two of them is 0, not NaN.
LOWEST = tl.constexpr(-1.0e38)


@triton.jit
def softmax_kernel(logits, out, logits_stride, out_stride, size, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    source = logits + row * logits_stride
    highest = tl.full([BLOCK], LOWEST, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    # Each lane keeps the maximum and the sum of its own column; one reduction at the end.
    for start in tl.range(0, size, BLOCK):
        column = start + lane
        x = tl.load(source + column, mask=column < size, other=float("-inf"))
        x = x.to(tl.float32) * factor
        now = tl.maximum(highest, x)
        total = total * tl.exp2(highest - now) + tl.exp2(x - now)
        highest = now
    top = tl.max(highest, 0)
    whole = tl.sum(total * tl.exp2(highest - top), 0)
    share = tl.where(whole > 0.0, 1.0 / whole, 0.0)
    for start in tl.range(0, size, BLOCK):
        column = start + lane
        inside = column < size
        x = tl.load(source + column, mask=inside, other=float("-inf"))
        x = tl.exp2(x.to(tl.float32) * factor - top) * share
        tl.store(out + row * out_stride + column, x, mask=inside)


def softmax(logits: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """fp32 probabilities of logits [num_rows, size] times `scale`; see reference.py."""
    num_rows, size = logits.shape
    out = torch.empty((num_rows, size), dtype=torch.float32, device=logits.device)
    if num_rows and size:
        config = configuration("softmax", "default", architecture(logits.device))
        softmax_kernel[(num_rows,)](
            logits,
            out,
            logits.stride(0),
            out.stride(0),
            size,
            scale * 1.4426950408889634,
            **config,
        )
    return out
