"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: M-RoPE on three axes; Qwen3-VL with DeepStack.

A picture of t x h x w merged patches takes the same temporal position for all its tokens and
spreads over the height and width axes; the text after it goes on behind the larger side. In
Qwen2-VL and Qwen2.5-VL the frequencies of the axes lie in sections, in Qwen3-VL they take turns.
A video goes on along the temporal axis: in Qwen2-VL by one a pair of frames, in Qwen2.5-VL by the
seconds that pass; in Qwen3-VL each pair stands like a picture behind its time in words.

Must not know: batches, blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from chiasm_contract.config import MediaKind

from chiasm_worker.layers.operations import Operations
from chiasm_worker.layers.rope import interleaved_axes, sectioned_axes
from chiasm_worker.models.base import (
    EncodedBatch,
    MediaEncoder,
    PicturesApart,
    PlacedItem,
    PositionScheme,
)
from chiasm_worker.models.compressor import TokenGrid, Window, reduced
from chiasm_worker.models.decoder import Decoder
from chiasm_worker.models.digest import WeightGroups
from chiasm_worker.models.text import build_decoder, head_dim, rope_scaling, rotary, sliding_windows

_DEFAULT_SECTIONS = {"sectioned": (16, 24, 24), "interleaved": (24, 20, 20)}


class QwenVisionEncoder:
    """transformers' Qwen vision tower with its merger(s)."""

    def __init__(self, visual: Any) -> None:
        self._visual = visual

    def batch_key(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """Pictures and videos of any size go together: the tower takes them packed."""

    def encode_batch(self, batch: Sequence[Mapping[str, torch.Tensor]]) -> EncodedBatch:
        """Features of several items; see MediaEncoder."""
        patches = [_patches(inputs) for inputs in batch]
        pixels = torch.cat(patches).to(self._visual.device, self._visual.dtype)
        grid = torch.cat([_grid(inputs) for inputs in batch]).to(self._visual.device)
        output = self._visual(pixels, grid_thw=grid, return_dict=True)
        levels = getattr(output, "deepstack_features", None) or []
        features = torch.cat((output.pooler_output, *levels), dim=-1)
        merge = pixels.shape[0] // features.shape[0]
        sizes = [each.shape[0] // merge for each in patches]
        return EncodedBatch(features.split(sizes), num_rows=pixels.shape[0])


class QwenVL(PicturesApart):
    """The Qwen-VL families, which differ in rotary layout, DeepStack and the times of videos."""

    modalities: tuple[MediaKind, ...] = ("image", "video")

    def __init__(self, name: str, architecture: str, rope_layout: str) -> None:
        self.name = name
        self.architectures = (architecture,)
        self._rope_layout = rope_layout

    def _sections(self, config: Any) -> tuple[int, ...]:
        default = _DEFAULT_SECTIONS[self._rope_layout]
        return tuple(config.text_config.rope_parameters.get("mrope_section", default))

    def split(
        self, model: Any, config: Any, operations: Operations
    ) -> tuple[Decoder, MediaEncoder, int]:
        """Our decoder, transformers' tower and the number of DeepStack levels; see Family."""
        text = config.text_config
        sections = self._sections(config)
        axes = (
            interleaved_axes(head_dim(text) // 2, sections)
            if self._rope_layout == "interleaved"
            else sectioned_axes(sections)
        )
        rope = rotary(text, model.dtype, model.device, axes)
        language_model, head = model.model.language_model, model.lm_head.weight
        decoder = build_decoder(text, rope, language_model, head, operations)
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
        return tuple(int(n) for n in _grid(inputs)[0])

    def token_side(self, config: Any) -> int | None:
        """The merger makes one token of a square of patches."""
        return int(config.vision_config.spatial_merge_size)

    def positions(
        self, num_tokens: int, items: Sequence[PlacedItem], config: Any
    ) -> npt.NDArray[np.int64]:
        """Positions of a prompt, equal to transformers' `get_rope_index`."""
        parts: list[npt.NDArray[np.int64]] = []
        token, position = 0, 0

        def text(count: int) -> npt.NDArray[np.int64]:
            return np.broadcast_to(np.arange(position, position + count), (3, count))

        for start, item in self._pieces(items):
            before = start - token
            parts.append(text(before))
            position += before
            box = self._box(item, config)
            parts.append(box + position)
            position += int(box[1:].max()) + 1
            token = start + box.shape[1]
        parts.append(text(num_tokens - token))
        return np.ascontiguousarray(np.concatenate(parts, axis=1), dtype=np.int64)

    def _pieces(self, items: Sequence[PlacedItem]) -> Iterator[tuple[int, PlacedItem]]:
        """(first token, item) of all that has positions of its own: pictures, videos, frames."""
        for item in items:
            if len(item.runs) > 1:
                frame = replace(item, grid=(1, *item.grid[1:]))
                yield from ((item.start + offset, frame) for offset, _ in item.runs)
            else:
                yield item.start, item

    def _box(self, item: PlacedItem, config: Any) -> npt.NDArray[np.int64]:
        """[3, tokens] positions of a piece from its own beginning."""
        vision = config.vision_config
        merge = vision.spatial_merge_size
        grid = TokenGrid(item.grid[0], item.grid[1] // merge, item.grid[2] // merge)
        box = np.indices(reduced(grid, Window(*item.window))).reshape(3, -1)
        rate = getattr(vision, "tokens_per_second", None)
        if item.modality == "video" and rate is not None:
            # In single precision, as transformers' tensors are.
            interval = np.float32(rate) * np.float32(item.seconds_per_step)
            box[0] = (box[0].astype(np.float32) * interval).astype(np.int64)
        return box


def _patches(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    is_video = "pixel_values_videos" in inputs
    return inputs["pixel_values_videos" if is_video else "pixel_values"]


def _grid(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    is_video = "video_grid_thw" in inputs
    return inputs["video_grid_thw" if is_video else "image_grid_thw"]
