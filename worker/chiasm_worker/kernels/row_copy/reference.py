"""Rows of bytes moved by a table, in torch."""

from __future__ import annotations

import torch


def row_copy(
    source: torch.Tensor, source_rows: torch.Tensor, target: torch.Tensor, target_rows: torch.Tensor
) -> torch.Tensor:
    """target[target_rows[i]] = source[source_rows[i]], in place; -1 on either side: not moved.

    Gathering, source_rows are blocks and target_rows places in a staging area; scattering, the
    other way round.

    Args:
        source: [.., num_bytes] uint8, rows a multiple of 64 bytes long and apart.
        target: likewise, of other memory than `source`.
        source_rows: [num_rows] int32; target_rows likewise, none of them twice.

    Returns: target.
    """
    moved = (source_rows >= 0) & (target_rows >= 0)
    target[target_rows[moved].long()] = source[source_rows[moved].long()]
    return target
