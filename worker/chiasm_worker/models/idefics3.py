"""Idefics3 and SmolVLM: tiles in rows and columns, each behind a mark that says where it lies, and
the whole picture last; between the tiles' tokens stand ordinary ones.

Must not know: batches, blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from chiasm_worker.models.projected import Projected


class Idefics3(Projected):
    """Idefics3 and SmolVLM, which differ in their processors only."""

    text_model = "text_model"
    tower = "vision_model"
    inputs = ("pixel_values", "pixel_attention_mask")

    def __init__(self, name: str, architecture: str) -> None:
        self.name = name
        self.architectures = (architecture,)

    def grid(self, inputs: Mapping[str, torch.Tensor], config: Any) -> tuple[int, ...]:
        """(tiles, h, w) with a tile's size in pixels."""
        _, tiles, _, height, width = inputs["pixel_values"].shape
        return int(tiles), int(height), int(width)
