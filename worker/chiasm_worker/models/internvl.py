"""InternVL: square tiles, four patches of the tower to one token, between two marks.

Must not know: batches, blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from chiasm_worker.models.projected import Projected


class InternVL(Projected):
    """The InternVL family in transformers' own format."""

    name = "internvl"
    architectures = ("InternVLForConditionalGeneration",)

    def grid(self, inputs: Mapping[str, torch.Tensor], config: Any) -> tuple[int, ...]:
        """(tiles,): all of one size."""
        return (int(inputs["pixel_values"].shape[0]),)
