"""Gemma 3: a SigLIP tower pooled to a fixed number of tokens, which see one another.

In five of six layers attention looks back over a window; the tokens of a picture see all that
follow in the picture there, too, but none before the window.

Must not know: batches, blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from chiasm_worker.layers.operations import Operations
from chiasm_worker.models.base import MediaEncoder, PositionScheme
from chiasm_worker.models.decoder import Decoder
from chiasm_worker.models.gemma_text import build_gemma
from chiasm_worker.models.mask import MaskRule
from chiasm_worker.models.projected import Projected
from chiasm_worker.models.text import rope_parameters, rope_scaling, sliding_windows

# What transformers' Gemma 3 with pictures does not compute, though its configuration can say it.
_NOT_COMPUTED = ("attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention")


class Gemma3(Projected):
    """The Gemma 3 family."""

    name = "gemma3"
    architectures = ("Gemma3ForConditionalGeneration",)

    def split(
        self, model: Any, config: Any, operations: Operations
    ) -> tuple[Decoder, MediaEncoder, int]:
        """Our decoder and transformers' encoder; see Family."""
        text = config.text_config
        for name in _NOT_COMPUTED:
            if getattr(text, name):
                raise ValueError(
                    f"text_config.{name} is {getattr(text, name)!r}, which this family does not "
                    "compute; set it to null or serve the model with another engine."
                )
        decoder = build_gemma(model, text, MaskRule.MEDIA, operations)
        inner = model.model
        inner.language_model = torch.nn.Identity()
        return decoder, self.encoder(inner, model.dtype), 0

    def position_scheme(self, config: Any) -> PositionScheme:
        """Rotary positions, with other frequencies in the layers that have a window."""
        text = config.text_config
        local = rope_parameters(text, "sliding_attention")
        return PositionScheme(
            type="rope-per-layer-type",
            theta=float(rope_parameters(text, "full_attention")["rope_theta"]),
            scaling=(
                f"full {rope_scaling(text, 'full_attention')}, sliding theta "
                f"{float(local['rope_theta'])} {rope_scaling(text, 'sliding_attention')}"
            ),
            sections=(),
            window=max(sliding_windows(text)),
        )

    def grid(self, inputs: Mapping[str, torch.Tensor], config: Any) -> tuple[int, ...]:
        """(pictures, h, w): the picture and its crops, each in patches of the tower."""
        patch = config.vision_config.patch_size
        count, _, height, width = inputs["pixel_values"].shape
        return (count, height // patch, width // patch)

    def token_side(self, config: Any) -> int | None:
        """The projector averages squares of patches; a picture with crops is refused by itself."""
        patches = config.vision_config.image_size // config.vision_config.patch_size
        return int(patches // math.isqrt(config.mm_tokens_per_image))
