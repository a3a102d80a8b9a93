"""What most families share: a tower, a projector, and a decoder with plain rotary positions.

A picture's tokens stand in the text like words: positions count on, attention is causal. Tower,
selection of its layers, projector and packing are transformers' `get_image_features`, run as it
is. A family says what its parts are called, which of the processor's outputs it takes, and what it
makes of a picture's size.

Must not know: batches, blocks.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from chiasm_worker.layers.operations import Operations
from chiasm_worker.models.base import (
    EncodedBatch,
    MediaEncoder,
    PicturesApart,
    PlacedItem,
    PositionScheme,
)
from chiasm_worker.models.decoder import Decoder
from chiasm_worker.models.digest import WeightGroups
from chiasm_worker.models.text import build_decoder, rope_scaling, rotary, sliding_windows

_MAX_SIZES = 8


class FeatureEncoder:
    """transformers' `get_image_features`; pictures of equal shape go together."""

    def __init__(self, model: Any, dtype: torch.dtype, inputs: Sequence[str]) -> None:
        self._model = model
        self._dtype = dtype
        self._inputs = tuple(inputs)
        patch = model.config.vision_config.patch_size
        self._patch_pixels = patch**2 if isinstance(patch, int) else math.prod(patch)

    def batch_key(self, inputs: Mapping[str, torch.Tensor]) -> Hashable:
        """Equal shapes, and equal sizes before padding, make equally many rows."""
        given = [(name, inputs[name]) for name in self._inputs if name in inputs]
        return tuple(
            (name, *tensor.shape, *(() if tensor.is_floating_point() else _sizes(tensor)))
            for name, tensor in given
        )

    def encode_batch(self, batch: Sequence[Mapping[str, torch.Tensor]]) -> EncodedBatch:
        """Features of several pictures; see MediaEncoder."""
        given = {
            name: self.place(torch.cat([inputs[name] for inputs in batch]))
            for name in self._inputs
            if name in batch[0]
        }
        together = rows(self._model.get_image_features(**given, return_dict=True).pooler_output)
        mask = given.get("pixel_attention_mask")
        return EncodedBatch(
            together.chunk(len(batch)),
            num_rows=given["pixel_values"].numel() // (3 * self._patch_pixels),
            num_padding_rows=0 if mask is None else int((mask == 0).sum()) // self._patch_pixels,
        )

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """An input where the model is; pixels in the model's type."""
        dtype = self._dtype if tensor.is_floating_point() else tensor.dtype
        return tensor.to(self._model.device, dtype)


def _sizes(tensor: torch.Tensor) -> tuple[int, ...]:
    """The numbers of an input that says sizes; a mask has one for each pixel and says nothing."""
    return tuple(tensor.flatten().tolist()) if tensor.numel() <= _MAX_SIZES else ()


def rows(features: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:
    """[num_tokens, hidden_size] of what transformers keeps in one tensor a tile or a picture."""
    return torch.cat(tuple(features), dim=0)


class Projected(PicturesApart):
    """Base of the families of this kind."""

    name: str
    architectures: tuple[str, ...]
    # Names in transformers' model: text model, tower.
    text_model = "language_model"
    tower = "vision_tower"
    # Outputs of the image processor that `get_image_features` takes.
    inputs: tuple[str, ...] = ("pixel_values",)

    def split(
        self, model: Any, config: Any, operations: Operations
    ) -> tuple[Decoder, MediaEncoder, int]:
        """Our decoder and transformers' encoder; see Family."""
        text, inner = config.text_config, model.model
        rope = rotary(text, model.dtype, model.device)
        language_model = getattr(inner, self.text_model)
        decoder = build_decoder(text, rope, language_model, model.lm_head.weight, operations)
        # get_image_features needs tower and projector only.
        setattr(inner, self.text_model, torch.nn.Identity())
        return decoder, self.encoder(inner, model.dtype), 0

    def encoder(self, model: Any, dtype: torch.dtype) -> MediaEncoder:
        """The encoder over the model without its head and text model."""
        return FeatureEncoder(model, dtype, self.inputs)

    def weight_groups(self, model: Any) -> WeightGroups:
        """Tensors of the language model, the tower, and all between them."""
        inner = model.model
        language = dict(getattr(inner, self.text_model).named_parameters())
        tower = dict(getattr(inner, self.tower).named_parameters())
        between = {
            name: tensor
            for name, tensor in inner.named_parameters()
            if name.split(".")[0] not in (self.text_model, self.tower)
        }
        return WeightGroups({**language, "lm_head.weight": model.lm_head.weight}, tower, between)

    def position_scheme(self, config: Any) -> PositionScheme:
        """Plain rotary positions."""
        return PositionScheme(
            type="rope",
            theta=float(config.text_config.rope_parameters["rope_theta"]),
            scaling=rope_scaling(config.text_config),
            sections=(),
            window=max(sliding_windows(config.text_config)),
        )

    def positions(
        self, num_tokens: int, items: Sequence[PlacedItem], config: Any
    ) -> npt.NDArray[np.int64]:
        """0, 1, 2, ..., media or not."""
        return np.arange(num_tokens, dtype=np.int64)[None]
