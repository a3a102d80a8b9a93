"""RMSNorm and LayerNorm, whole rows per program, statistics in fp32; see README.md."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from chiasm_worker.kernels.launch import architecture, configuration

MAX_SIZE = 32768


@triton.jit
def norm_kernel(
    x,
    residual,
    weight,
    bias,
    out,
    summed,
    x_stride,
    residual_stride,
    out_stride,
    summed_stride,
    num_rows,
    size,
    eps,
    HAS_RESIDUAL: tl.constexpr,
    CENTRED: tl.constexpr,
    OFFSET: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
):
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    own = column < size
    inside = (row < num_rows) & own
    value = tl.load(x + row * x_stride + column, mask=inside, other=0.0)
    if HAS_RESIDUAL:
        value += tl.load(residual + row * residual_stride + column, mask=inside, other=0.0)
        tl.store(summed + row * summed_stride + column, value, mask=inside)
    wide = value.to(tl.float32)
    if CENTRED:
        mean = tl.sum(wide, 1, keep_dims=True) / size
        wide = tl.where(inside, wide - mean, 0.0)
    normed = wide * tl.rsqrt(tl.sum(wide * wide, 1, keep_dims=True) / size + eps)
    scale = tl.load(weight + column, mask=own, other=0.0)
    if CENTRED:
        shift = tl.load(bias + column, mask=own, other=0.0)
        normed = normed * scale.to(tl.float32) + shift.to(tl.float32)
    elif OFFSET:
        normed = normed * (1.0 + scale.to(tl.float32))
    else:
        # Rounded before the weight multiplies, as in transformers.
        normed = normed.to(value.dtype) * scale
    tl.store(out + row * out_stride + column, normed.to(value.dtype), mask=inside)


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    residual: torch.Tensor | None = None,
    *,
    offset: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalised rows, and the sum that was normalised; see reference.py."""
    return _launch(x, weight, None, eps, residual, offset)


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
    residual: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalised rows, and the sum that was normalised; see reference.py."""
    return _launch(x, weight, bias, eps, residual, False)


def _launch(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    eps: float,
    residual: torch.Tensor | None,
    offset: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    num_rows, size = x.shape
    out = torch.empty((num_rows, size), dtype=x.dtype, device=x.device)
    summed = x if residual is None else torch.empty_like(out)
    if num_rows:
        config = configuration("norm", variant(size), architecture(x.device))
        norm_kernel[(triton.cdiv(num_rows, config["ROWS"]),)](
            x,
            x if residual is None else residual,
            weight,
            weight if bias is None else bias,
            out,
            summed,
            x.stride(0),
            x.stride(0) if residual is None else residual.stride(0),
            out.stride(0),
            summed.stride(0),
            num_rows,
            size,
            eps,
            HAS_RESIDUAL=residual is not None,
            CENTRED=bias is not None,
            OFFSET=offset,
            WIDTH=triton.next_power_of_2(size),
            **config,
        )
    return out, summed


def variant(size: int) -> str:
    """The launch table's row for rows of that size."""
    if size > MAX_SIZE:
        raise ValueError(f"Rows of {size} are normalised up to {MAX_SIZE}; use torch for them.")
    return next(f"w{width}" for width in (256, 2048, 8192, MAX_SIZE) if size <= width)
