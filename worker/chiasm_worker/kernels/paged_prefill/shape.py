"""How large the tiles are that a plan is made for.

Must not know: Triton, plans.
"""

from __future__ import annotations

import torch

from chiasm_worker.kernels.codes import cache_row
from chiasm_worker.kernels.launch import architecture, configuration, queries_of


def tile_shape(
    dtype: torch.dtype, head_dim: int, group: int, device: torch.device
) -> tuple[int, int]:
    """(queries of a tile, keys of a tile); `group` heads share K and V.

    Raises: ValueError when they are more than the rows of a tile.
    """
    config = configuration("paged_prefill", cache_row(dtype, head_dim), architecture(device))
    return queries_of(config["ROWS"], group), config["TILE"]
