"""Mistral3: Pixtral's tower for pictures of any size, patches merged, and a separator token behind
each row of them.

Must not know: batches, blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from chiasm_worker.models.projected import Projected


class Mistral3(Projected):
    """The Mistral3 family."""

    name = "mistral3"
    architectures = ("Mistral3ForConditionalGeneration",)
    inputs = ("pixel_values", "image_sizes")

    def grid(self, inputs: Mapping[str, torch.Tensor], config: Any) -> tuple[int, ...]:
        """(h, w) in merged patches."""
        side = config.vision_config.patch_size * config.spatial_merge_size
        return tuple(int(size) // side for size in inputs["image_sizes"][0])
