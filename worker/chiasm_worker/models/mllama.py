"""Mllama (Llama 3.2 Vision): text reads pictures through cross-attention layers of its own.

A picture takes one token of the text. Its tiles go through transformers' tower and projector, and
from there into K and V of the cross-attention layers, once per picture: these are what the cache
keeps, until the last token that reads them. A text token reads the pictures before it, up to the
next one; of a picture it sees the tiles that there are, not those that pad it to full number.

Must not know: batches, blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from chiasm_worker.layers.operations import Operations
from chiasm_worker.models.base import MediaEncoder, OneByOne
from chiasm_worker.models.decoder import Decoder
from chiasm_worker.models.mask import MaskRule
from chiasm_worker.models.projected import Projected
from chiasm_worker.models.text import decoder_spec, rotary, take_weights


class MllamaEncoder(OneByOne):
    """transformers' tower and projector, then K and V of our cross-attention layers."""

    def __init__(self, model: Any, decoder: Decoder) -> None:
        self._model = model
        self._decoder = decoder

    def encode(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """[num_vectors, num_cross_layers * 2 * num_kv_heads * head_dim] of one picture.

        Tiles that only pad the picture are among the vectors: a token before all pictures reads
        them too, see CrossSource.
        """
        tower = self._model.vision_model
        states = tower(
            pixel_values=inputs["pixel_values"].to(tower.device, tower.dtype),
            aspect_ratio_ids=inputs["aspect_ratio_ids"].to(tower.device),
            aspect_ratio_mask=inputs["aspect_ratio_mask"].to(tower.device),
        ).last_hidden_state
        # [1, 1, num_tiles, num_patches, vision_output_dim] -> [num_vectors, hidden_size]
        projected = self._model.multi_modal_projector(states).flatten(0, 3)
        return self._decoder.cross_kv(projected).flatten(1)


class Mllama(Projected):
    """The Mllama family."""

    name = "mllama"
    architectures = ("MllamaForConditionalGeneration",)
    tower = "vision_model"

    def split(
        self, model: Any, config: Any, operations: Operations
    ) -> tuple[Decoder, MediaEncoder, int]:
        """Our decoder and transformers' encoder; see Family."""
        text, inner = config.text_config, model.model
        spec = replace(
            decoder_spec(text),
            mask=MaskRule.CROSS,
            cross_layers=tuple(text.cross_attention_layers),
        )
        weights = take_weights(inner.language_model, model.lm_head.weight, operations)
        decoder = Decoder(spec, rotary(text, model.dtype, model.device), weights)
        inner.language_model = torch.nn.Identity()
        return decoder, MllamaEncoder(inner, decoder), 0

    def grid(self, inputs: Mapping[str, torch.Tensor], config: Any) -> tuple[int, ...]:
        """(arrangement of the tiles, vectors with those of padding, vectors of the tiles)."""
        vision = config.vision_config
        per_tile = (vision.image_size // vision.patch_size) ** 2 + 1
        mask = inputs["aspect_ratio_mask"][0, 0]
        return (int(inputs["aspect_ratio_ids"]), len(mask) * per_tile, int(mask.sum()) * per_tile)
