"""The mean of windows, a stretch of one window's result per program; see README.md."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from chiasm_worker.kernels.launch import architecture, configuration


@triton.jit
def window_mean_kernel(
    features,
    windows,
    out,
    width,
    features_stride,
    windows_stride,
    out_stride,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    window = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    sums = tl.zeros([BLOCK], tl.float32)
    count = 0
    for place in tl.static_range(SIZE):
        token = tl.load(windows + window * windows_stride + place).to(tl.int64)
        at = features + token * features_stride + column
        sums += tl.load(at, mask=inside & (token >= 0), other=0.0).to(tl.float32)
        count += (token >= 0).to(tl.int32)
    mean = sums / count
    tl.store(out + window * out_stride + column, mean.to(out.dtype.element_ty), mask=inside)


def window_mean(features: torch.Tensor, windows: torch.Tensor) -> torch.Tensor:
    """The mean of each window; see reference.py."""
    width, (num_windows, size) = features.shape[1], windows.shape
    out = torch.empty((num_windows, width), dtype=features.dtype, device=features.device)
    if num_windows:
        config = configuration("window_mean", "default", architecture(features.device))
        window_mean_kernel[(num_windows, triton.cdiv(width, config["BLOCK"]))](
            features, windows, out, width, features.stride(0), windows.stride(0), out.stride(0),
            SIZE=size, **config,
        )  # fmt: skip
    return out
