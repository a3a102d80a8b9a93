"""act(gate) * up, a stretch of a row per program; see README.md."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from chiasm_worker.kernels.launch import architecture, configuration


@triton.jit
def _activated(x, ACTIVATION: tl.constexpr):
    if ACTIVATION == "silu":
        return x * tl.sigmoid(x)
    if ACTIVATION == "relu":
        return tl.maximum(x, 0.0)
    if ACTIVATION == "gelu":
        return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    # tanh(u) = 2 sigmoid(2 u) - 1; there is no tanh without a vendor's library.
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return x * tl.sigmoid(2.0 * inner)


@triton.jit
def activation_mul_kernel(
    gate_up, out, gate_up_stride, out_stride, size, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    start = gate_up + row * gate_up_stride
    gate = tl.load(start + column, mask=inside, other=0.0)
    up = tl.load(start + size + column, mask=inside, other=0.0)
    product = _activated(gate.to(tl.float32), ACTIVATION).to(gate.dtype) * up
    tl.store(out + row * out_stride + column, product, mask=inside)


def activation_mul(gate_up: torch.Tensor, activation: str) -> torch.Tensor:
    """[num_rows, size] of gate_up [num_rows, 2 * size], the gate's half first."""
    num_rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((num_rows, size), dtype=gate_up.dtype, device=gate_up.device)
    if num_rows:
        config = configuration("activation", "default", architecture(gate_up.device))
        grid = (num_rows, triton.cdiv(size, config["BLOCK"]))
        activation_mul_kernel[grid](
            gate_up, out, gate_up.stride(0), out.stride(0), size, activation, **config
        )
    return out
