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

    def token_side(self, config: Any) -> int | None:
        """A token for each patch; not with Pixtral's separators, a class token, a patch dropped."""
        if config.vision_config.model_type == "pixtral":
            return None
        drops_first = config.vision_feature_select_strategy == "default"
        has_class_token = config.vision_config.model_type == "clip_vision_model"
        return 1 if drops_first == has_class_token else None
