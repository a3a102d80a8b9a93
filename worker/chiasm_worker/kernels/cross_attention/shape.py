"""How large the programs are that a plan is made for.

Must not know: Triton.
"""

from __future__ import annotations

import torch

from chiasm_worker.kernels.cross_attention.plan import Shape
from chiasm_worker.kernels.launch import architecture, configuration, queries_of


def variant(kind: str, dtype: torch.dtype, head_dim: int) -> str:
    """The launch table's row; `kind`: few or many rows."""
    if dtype == torch.float32:
        return f"{kind}_float32"
    return f"{kind}_wide" if head_dim > 128 else kind


def plan_shape(dtype: torch.dtype, head_dim: int, group: int, device: torch.device) -> Shape:
    """What a plan must be made for; `group` heads share K and V.

    Raises: ValueError when they are more than the rows of a program.
    """
    few, many = (
        configuration("cross_attention", variant(kind, dtype, head_dim), architecture(device))
        for kind in ("few", "many")
    )
    # Where not one query fits the few rows, all rows are many.
    return Shape(few["ROWS"] // group, queries_of(many["ROWS"], group), few["CHUNK"])
