"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: M-RoPE on three axes; Qwen3-VL with DeepStack.

A picture of t x h x w merged patches takes the same temporal position for all its tokens and
spreads over the height and width axes; the text after it goes on behind the larger side. In
Qwen2-VL and Qwen2.5-VL the frequencies of the axes lie in sections, in Qwen3-VL they take turns.

Must not know: batches, blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from chiasm_worker.layers.rope import interleaved_axes, sectioned_axes
from chiasm_worker.models.base import EncodedBatch, PlacedItem, PositionScheme, VisionEncoder
from chiasm_worker.models.decoder import Decoder
from chiasm_worker.models.digest import WeightGroups
from chiasm_worker.models.text import build_decoder, head_dim, rope_scaling, rotary, sliding_windows

_DEFAULT_SECTIONS = {"sectioned": (16, 24, 24), "interleaved": (24, 20, 20)}


class QwenVisionEncoder:
    """transformers' Qwen vision tower with its merger(s)."""

    def __init__(self, visual: Any) -> None:
        self._visual = visual

    def encode(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Features of one picture; see VisionEncoder."""
        return self.encode_batch([inputs]).features[0]

    def batch_key(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """Pictures of any size go together: the tower takes them packed."""

    def encode_batch(self, batch: Sequence[Mapping[str, torch.Tensor]]) -> EncodedBatch:
        """Features of several pictures; see BatchingEncoder."""
        pixels = torch.cat([inputs["pixel_values"] for inputs in batch])
        pixels = pixels.to(self._visual.device, self._visual.dtype)
        grid = torch.cat([inputs["image_grid_thw"] for inputs in batch]).to(self._visual.device)
        output = self._visual(pixels, grid_thw=grid, return_dict=True)
        levels = getattr(output, "deepstack_features", None) or []
        features = torch.cat((output.pooler_output, *levels), dim=-1)
        merge = pixels.shape[0] // features.shape[0]
        sizes = [inputs["pixel_values"].shape[0] // merge for inputs in batch]
        return EncodedBatch(features.split(sizes), num_rows=pixels.shape[0])


class QwenVL:
    """The Qwen-VL families, which differ in rotary layout and DeepStack only."""

    def __init__(self, name: str, architecture: str, rope_layout: str) -> None:
        self.name = name
        self.architectures = (architecture,)
        self._rope_layout = rope_layout

    def _sections(self, config: Any) -> tuple[int, ...]:
        default = _DEFAULT_SECTIONS[self._rope_layout]
        return tuple(config.text_config.rope_parameters.get("mrope_section", default))

    def split(self, model: Any, config: Any) -> tuple[Decoder, VisionEncoder, int]:
        """Our decoder, transformers' tower and the number of DeepStack levels; see Family."""
        text = config.text_config
        sections = self._sections(config)
        axes = (
            interleaved_axes(head_dim(text) // 2, sections)
            if self._rope_layout == "interleaved"
            else sectioned_axes(sections)
        )
        rope = rotary(text, model.dtype, model.device, axes)
        decoder = build_decoder(text, rope, model.model.language_model, model.lm_head.weight)
        levels = len(getattr(config.vision_config, "deepstack_visual_indexes", ()))
        return decoder, QwenVisionEncoder(model.model.visual), levels

    def weight_groups(self, model: Any) -> WeightGroups:
        """Tensors of the language model, the tower and its mergers."""
        visual = dict(model.model.visual.named_parameters())
        is_merger = {name: "merger" in name.split(".")[0] for name in visual}
        return WeightGroups(
            language={
                **dict(model.model.language_model.named_parameters()),
                "lm_head.weight": model.lm_head.weight,
            },
            vision_encoder={n: t for n, t in visual.items() if not is_merger[n]},
            projector={n: t for n, t in visual.items() if is_merger[n]},
        )

    def position_scheme(self, config: Any) -> PositionScheme:
        """M-RoPE with this family's layout."""
        text = config.text_config
        return PositionScheme(
            type=f"mrope-{self._rope_layout}",
            theta=float(text.rope_parameters["rope_theta"]),
            scaling=rope_scaling(text),
            sections=self._sections(config),
            window=max(sliding_windows(text)),
        )

    def grid(self, inputs: Mapping[str, torch.Tensor], config: Any) -> tuple[int, ...]:
        """(t, h, w) in patches before merging."""
        return tuple(int(n) for n in inputs["image_grid_thw"][0])

    def positions(
        self, num_tokens: int, items: Sequence[PlacedItem], config: Any
    ) -> npt.NDArray[np.int64]:
        """Positions of a prompt, equal to transformers' `get_rope_index`."""
        merge = config.vision_config.spatial_merge_size
        parts: list[npt.NDArray[np.int64]] = []
        token, position = 0, 0

        def text(count: int) -> npt.NDArray[np.int64]:
            return np.broadcast_to(np.arange(position, position + count), (3, count))

        for item in items:
            before = item.start - token
            parts.append(text(before))
            position += before
            t, h, w = item.grid[0], item.grid[1] // merge, item.grid[2] // merge
            parts.append(np.indices((t, h, w)).reshape(3, -1) + position)
            position += max(h, w)
            token = item.start + item.num_tokens
        parts.append(text(num_tokens - token))
        return np.ascontiguousarray(np.concatenate(parts, axis=1), dtype=np.int64)
