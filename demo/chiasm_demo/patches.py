"""Pictures as the processor hands them to the vision tower, for whole batches of one size.

The same numbers as the processor's own (a test compares them), plus noise and light changes that
are new each time a picture is seen.
"""

from __future__ import annotations

import torch

from chiasm_demo.model_config import MERGE, PATCH_PIXELS


def relight(pictures: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """[batch, H, W, 3] in 0..255: other brightness, contrast, tint and noise for each picture."""
    batch = pictures.shape[0]

    def uniform(low: float, high: float, channels: int) -> torch.Tensor:
        values = torch.rand(batch, 1, 1, channels, generator=generator)
        return low + (high - low) * values

    lit = (pictures - 128) * uniform(0.88, 1.1, 1) + 128 + uniform(-14, 14, 1) + uniform(-6, 6, 3)
    noise = torch.randn(pictures.shape, generator=generator)
    return (lit + noise * uniform(0, 7, 1)).clamp(0, 255)


def to_patches(pictures: torch.Tensor) -> torch.Tensor:
    """[batch, H, W, 3] in 0..255 -> [batch * P, 3 * 14 * 14], one frame, the processor's order."""
    batch, height, width, _ = pictures.shape
    rows, columns = height // PATCH_PIXELS, width // PATCH_PIXELS
    scaled = (pictures / 255 - 0.5) / 0.5
    tiles = scaled.reshape(
        batch, rows // MERGE, MERGE, PATCH_PIXELS, columns // MERGE, MERGE, PATCH_PIXELS, 3
    )
    tiles = tiles.permute(0, 1, 4, 2, 5, 7, 3, 6)  # [batch, row, column, 2, 2, 3, 14, 14]
    return tiles.reshape(batch * rows * columns, -1)
