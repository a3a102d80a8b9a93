"""LLaVA: any CLIP- or SigLIP-like tower, a two-layer projector, a llama-like decoder.

A picture's tokens stand in the text like words: plain rotary positions, causal attention.

Must not know: batches, blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from chiasm_worker.models.base import EncodedBatch, PlacedItem, PositionScheme, VisionEncoder
from chiasm_worker.models.decoder import Decoder
from chiasm_worker.models.digest import WeightGroups
from chiasm_worker.models.text import build_decoder, rope_scaling, rotary, sliding_windows


class LlavaVisionEncoder:
    """transformers' tower, layer selection and projector."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._parameter = next(model.vision_tower.parameters())
        self._patch_size: int = model.config.vision_config.patch_size

    def encode(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Features of one picture; see VisionEncoder."""
        return self.encode_batch([inputs]).features[0]

    def batch_key(self, inputs: Mapping[str, torch.Tensor]) -> tuple[int, ...]:
        """Pictures of one size go together."""
        return tuple(inputs["pixel_values"].shape)

    def encode_batch(self, batch: Sequence[Mapping[str, torch.Tensor]]) -> EncodedBatch:
        """Features of several pictures of one size; see BatchingEncoder."""
        pixels = torch.cat([inputs["pixel_values"] for inputs in batch])
        pixels = pixels.to(self._parameter.device, self._parameter.dtype)
        features = self._model.get_image_features(pixels, return_dict=True).pooler_output
        num_patches = (pixels.shape[-2] // self._patch_size) * (
            pixels.shape[-1] // self._patch_size
        )
        return EncodedBatch(tuple(features), num_rows=pixels.shape[0] * num_patches)


class Llava:
    """The LLaVA family."""

    name = "llava"
    architectures = ("LlavaForConditionalGeneration",)

    def split(self, model: Any, config: Any) -> tuple[Decoder, VisionEncoder, int]:
        """Our decoder and transformers' encoder; see Family."""
        text = config.text_config
        rope = rotary(text, model.dtype, model.device)
        decoder = build_decoder(text, rope, model.model.language_model, model.lm_head.weight)
        inner = model.model
        # get_image_features needs the tower and the projector only.
        inner.language_model = torch.nn.Identity()
        return decoder, LlavaVisionEncoder(inner), 0

    def weight_groups(self, model: Any) -> WeightGroups:
        """Tensors of the language model, the tower and the projector."""
        return WeightGroups(
            language={
                **dict(model.model.language_model.named_parameters()),
                "lm_head.weight": model.lm_head.weight,
            },
            vision_encoder=dict(model.model.vision_tower.named_parameters()),
            projector=dict(model.model.multi_modal_projector.named_parameters()),
        )

    def position_scheme(self, config: Any) -> PositionScheme:
        """Plain rotary positions."""
        rope = config.text_config.rope_parameters
        return PositionScheme(
            type="rope",
            theta=float(rope["rope_theta"]),
            scaling=rope_scaling(config.text_config),
            sections=(),
            window=max(sliding_windows(config.text_config)),
        )

    def grid(self, inputs: Mapping[str, torch.Tensor], config: Any) -> tuple[int, ...]:
        """(h, w) in patches of the tower."""
        patch = config.vision_config.patch_size
        return tuple(int(side) // patch for side in inputs["pixel_values"].shape[-2:])

    def positions(
        self, num_tokens: int, items: Sequence[PlacedItem], config: Any
    ) -> npt.NDArray[np.int64]:
        """0, 1, 2, ..., media or not."""
        return np.arange(num_tokens, dtype=np.int64)[None]
