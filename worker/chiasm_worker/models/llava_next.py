"""LLaVA-NeXT: a picture is cut into tiles at the resolution that fits it best, beside a small
whole; padding is cut off the tiles' features again, and a learned newline ends each row.

Must not know: batches, blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from chiasm_worker.models.projected import Projected


class LlavaNext(Projected):
    """The LLaVA-NeXT family."""

    name = "llava-next"
    architectures = ("LlavaNextForConditionalGeneration",)
    inputs = ("pixel_values", "image_sizes")

    def grid(self, inputs: Mapping[str, torch.Tensor], config: Any) -> tuple[int, ...]:
        """(tiles, h, w): the picture's own size in pixels says what was padding."""
        return (int(inputs["pixel_values"].shape[1]), *map(int, inputs["image_sizes"][0]))
