"""Products with packed weights in torch.

y = round(x @ ((code - zero) * scale).T + bias), all of it in fp32, rounded once to x's type. The
kernel multiplies the same numbers: code - zero is exact in 16 bits, its products with x are summed
in fp32, and the sum of a group is multiplied by its scale in fp32.
"""

from __future__ import annotations

import torch

from chiasm_worker.kernels.quantised_linear.packed import PackedWeight, dequantise


def quantised_linear(
    x: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """The product [num_rows, num_outputs], of x's type.

    Args:
        x: [num_rows, size] bf16, fp16 or fp32; rows may have holes between them.
        bias: [num_outputs].
    """
    product = x.float() @ dequantise(weight).T
    if bias is not None:
        product += bias.float()
    return product.to(x.dtype)
