"""LLaVA: any CLIP- or SigLIP-like tower, a two-layer projector, a llama-like decoder.

Pixtral is published under the same architecture: its tower takes pictures of any size, and a
separator token stands behind each row of patches.

Must not know: batches, blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from chiasm_worker.models.projected import Projected


class Llava(Projected):
    """The LLaVA family, Pixtral included."""

    name = "llava"
    architectures = ("LlavaForConditionalGeneration",)
    inputs = ("pixel_values", "image_sizes")

    def grid(self, inputs: Mapping[str, torch.Tensor], config: Any) -> tuple[int, ...]:
        """(h, w) in patches of the tower."""
        patch = config.vision_config.patch_size
        return tuple(int(side) // patch for side in inputs["pixel_values"].shape[-2:])
