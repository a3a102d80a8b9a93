"""PaliGemma 1 and 2: a SigLIP tower before a Gemma decoder that reads its whole prompt at once.

All tokens of the prompt, pictures and words, see one another; the answer is causal. The processor
writes the pictures first, then a begin-of-text token, the words and a line's end; positions count
from 1. transformers takes no prompt without a picture, and so do we.

Must not know: batches, blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from chiasm_worker.layers.operations import Operations
from chiasm_worker.models.base import MediaEncoder, PlacedItem
from chiasm_worker.models.decoder import Decoder
from chiasm_worker.models.gemma_text import build_gemma
from chiasm_worker.models.mask import MaskRule
from chiasm_worker.models.projected import Projected

# Checkpoints bring none: they were made for pictures and a line of words.
CHAT_TEMPLATE = (
    "{% for m in messages %}{% for c in m.content %}{% if c.type == 'image' %}<image>{% endif %}"
    "{% endfor %}{% endfor %}"
    "{% for m in messages %}{% if not loop.first %}\n{% endif %}"
    "{% for c in m.content %}{% if c.type != 'image' %}{{ c.text }}{% endif %}"
    "{% endfor %}{% endfor %}"
)


class PaliGemma(Projected):
    """The PaliGemma family."""

    name = "paligemma"
    architectures = ("PaliGemmaForConditionalGeneration",)
    needs_media = True
    default_template = CHAT_TEMPLATE

    def split(
        self, model: Any, config: Any, operations: Operations
    ) -> tuple[Decoder, MediaEncoder, int]:
        """Our decoder and transformers' encoder; see Family."""
        decoder = build_gemma(model, config.text_config, MaskRule.PROMPT, operations)
        inner = model.model
        inner.language_model = torch.nn.Identity()
        return decoder, self.encoder(inner, model.dtype), 0

    def grid(self, inputs: Mapping[str, torch.Tensor], config: Any) -> tuple[int, ...]:
        """(h, w) in patches of the tower."""
        patch = config.vision_config.patch_size
        return tuple(int(side) // patch for side in inputs["pixel_values"].shape[-2:])

    def token_side(self, config: Any) -> int | None:
        """A token for each patch."""
        return 1

    def positions(
        self, num_tokens: int, items: Sequence[PlacedItem], config: Any
    ) -> npt.NDArray[np.int64]:
        """1, 2, 3, ..., media or not."""
        return np.arange(1, num_tokens + 1, dtype=np.int64)[None]

    def lay_out(self, parts: Sequence[str], bos: str) -> list[str]:
        """Begin-of-text behind the last picture, a line's end behind the words; see Family."""
        return [*parts[:-1], f"{bos}{parts[-1]}\n"]
