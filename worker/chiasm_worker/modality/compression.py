"""From the detail that a request asks for to the picture as the language model gets it.

The ratio follows from the detail and the model's configuration, the number of tokens from ratio
and grid. The encoder's work is the same at every ratio: a compressed item differs in its identity
and its placeholder only. A model whose tokens form no plain grid is refused by name.

Must not know: prompts, batches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chiasm_contract.config import COMPRESSION_RATIOS, Detail, VisionConfig
from chiasm_contract.errors import InvalidRequest

from chiasm_worker.media_identity import Compression
from chiasm_worker.modality.media import MediaItem
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.models.compressor import COMPRESSORS, TokenGrid, reduced, window_of


class ImageCompression:
    """What each detail means for one model's pictures.

    Raises: ValueError when the model cannot be compressed as its configuration says.
    """

    def __init__(self, model: LoadedModel, vision: VisionConfig) -> None:
        self._vision = vision
        self._tokenizer: Any = model.processor.tokenizer
        self._family = model.family.name
        self._side = model.family.token_side(model.config)
        if self._side is None and vision.compression != 1:
            raise ValueError(f"model.vision.compression is {vision.compression}; {self._refusal}")

    def apply(self, item: MediaItem, detail: Detail, index: int) -> MediaItem:
        """Picture number `index` of a request at a detail.

        Raises: InvalidRequest when the model's tokens cannot be compressed.
        """
        ratio = self._vision.ratio(detail)
        if ratio == 1:
            return item
        grid = self._token_grid(item)
        if grid is None:
            raise InvalidRequest(
                f"Picture {index + 1} asks for detail {detail!r}, here a compression of {ratio}; "
                f"{self._refusal} Send detail 'high'.",
                param=f"images[{index}].detail",
            )
        method, window = self._vision.compression_method, window_of(grid, ratio)
        num_before, num_after = grid.num_tokens, reduced(grid, window).num_tokens
        identity = replace(
            item.identity,
            num_tokens=num_after,
            compression=Compression(method, COMPRESSORS[method].version, ratio, grid, window),
        )
        token = self._token(item)
        placeholder = item.placeholder.replace(token * num_before, token * num_after)
        return replace(item, identity=identity, placeholder=placeholder)

    @property
    def _refusal(self) -> str:
        ratios = ", ".join(map(str, COMPRESSION_RATIOS))
        return (
            f"the vision tokens of this {self._family} model form no plain grid that could be cut "
            f"into windows, so of {ratios} only 1 is allowed."
        )

    def _token_grid(self, item: MediaItem) -> TokenGrid | None:
        """The grid of an item's tokens; None where something stands beside or between them."""
        if self._side is None:
            return None
        frames, rows, columns = (1, *item.identity.grid)[-3:]
        grid = TokenGrid(frames, rows // self._side, columns // self._side)
        num_tokens = item.identity.num_tokens
        is_plain = grid.num_tokens == num_tokens
        return grid if is_plain and self._token(item) * num_tokens in item.placeholder else None

    def _token(self, item: MediaItem) -> str:
        """What stands for one row of the encoder's output."""
        return str(self._tokenizer.convert_ids_to_tokens(item.row_token_id))
