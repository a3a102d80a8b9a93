"""LLaVA-OneVision: tiles as in LLaVA-NeXT for a picture that is alone in its prompt, one square for
each of several; of videos each frame is pooled to a quarter, and one newline ends all of them.

Must not know: batches, blocks.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from chiasm_contract.config import MediaKind
from PIL import Image

from chiasm_worker.models.base import EncodedBatch, MediaEncoder, ProcessedMedia, process_images
from chiasm_worker.models.projected import FeatureEncoder, Projected, rows


class OneVisionEncoder(FeatureEncoder):
    """transformers' features of pictures of equal shape, or of one video's frames."""

    def batch_key(self, inputs: Mapping[str, torch.Tensor]) -> Hashable:
        """A video comes alone."""
        return object() if "pixel_values_videos" in inputs else super().batch_key(inputs)

    def encode_batch(self, batch: Sequence[Mapping[str, torch.Tensor]]) -> EncodedBatch:
        """Features of pictures or of videos; see MediaEncoder."""
        if "pixel_values_videos" not in batch[0]:
            return super().encode_batch(batch)
        features = [self._video(inputs["pixel_values_videos"]) for inputs in batch]
        return EncodedBatch(features, num_rows=sum(len(each) for each in features))

    def _video(self, frames: torch.Tensor) -> torch.Tensor:
        output = self._model.get_video_features(self.place(frames), return_dict=True)
        return rows(output.pooler_output)


class LlavaOnevision(Projected):
    """The LLaVA-OneVision family."""

    name = "llava-onevision"
    architectures = ("LlavaOnevisionForConditionalGeneration",)
    modalities: tuple[MediaKind, ...] = ("image", "video")
    inputs = ("pixel_values", "image_sizes", "batch_num_images")

    def encoder(self, model: Any, dtype: torch.dtype) -> MediaEncoder:
        """The encoder of pictures and videos."""
        return OneVisionEncoder(model, dtype, self.inputs)

    def variant(self, num_images: int) -> int:
        """A picture is cut into tiles only where it is alone."""
        return min(num_images, 2)

    def process_image(
        self, processor: Any, options: Mapping[str, Any], image: Image.Image, num_images: int
    ) -> ProcessedMedia:
        """What the processor makes of one of a prompt's `num_images` pictures."""
        if num_images == 1:
            return process_images(processor, options, [image])
        # The processor asks only whether there are others, not what they show.
        beside = Image.new("RGB", (1, 1))
        inputs, placeholder = process_images(processor, options, [image, beside])
        first = {name: inputs[name][:1] for name in self.inputs}
        return first, placeholder

    def grid(self, inputs: Mapping[str, torch.Tensor], config: Any) -> tuple[int, ...]:
        """(tiles, h, w) with a picture's own size in pixels, (frames, h, w) of a video's frames."""
        if "pixel_values_videos" in inputs:
            _, frames, _, height, width = inputs["pixel_values_videos"].shape
            return int(frames), int(height), int(width)
        return (int(inputs["pixel_values"].shape[1]), *map(int, inputs["image_sizes"][0]))
