"""How large the tiles are that a plan is made for.

Must not know: Triton, plans.
"""

from __future__ import annotations

import torch

from chiasm_worker.kernels.codes import form_of
from chiasm_worker.kernels.launch import architecture, configuration


def variant(dtype: torch.dtype, head_dim: int) -> str:
    """The launch table's row for a cache of that type."""
    form = form_of(dtype)
    if dtype == torch.float32:
        return "float32"
    name = "float16" if form == "float" else form
    return f"{name}_wide" if head_dim > 128 else name


def tile_shape(
    dtype: torch.dtype, head_dim: int, group: int, device: torch.device
) -> tuple[int, int]:
    """(queries of a tile, keys of a tile); `group` heads share K and V."""
    config = configuration("paged_prefill", variant(dtype, head_dim), architecture(device))
    if group > config["ROWS"]:
        raise ValueError(f"{group} heads share K and V; a tile has {config['ROWS']} rows.")
    return config["ROWS"] // group, config["TILE"]
