"""From canonical pixels to what the model's encoder takes, by transformers' own processors.

Must not know: prompts, batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers.video_utils import VideoMetadata

from chiasm_worker.media_identity import MediaIdentity
from chiasm_worker.modality.audio import CanonicalAudio
from chiasm_worker.modality.image import CanonicalImage
from chiasm_worker.modality.options import resolved_options
from chiasm_worker.modality.video import CanonicalVideo
from chiasm_worker.models.base import LoadedModel


@dataclass(frozen=True, slots=True)
class MediaItem:
    """A picture, video or sound as a prompt shows it.

    Attributes:
        placeholder: what stands for the item in the rendered prompt, before tokenisation. It may
            hold ordinary words and separators beside the tokens that stand for the encoder's rows.
        row_token_id: the token that stands for one of these rows.
    """

    identity: MediaIdentity
    placeholder: str
    row_token_id: int
    seconds_per_step: float = 1.0


# The item and what the encoder takes of it, by the names under which the model takes them.
Tensors = Mapping[str, torch.Tensor]
Processed = tuple[MediaItem, Tensors]


class MediaProcessor:
    """Runs the processors; safe to call from several threads."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._processor: Any = model.processor
        self._options = resolved_options(self._processor)

    def image(self, image: CanonicalImage, num_images: int = 1) -> Processed:
        """One of a prompt's `num_images` pictures."""
        processor, family = self._processor, self._model.family
        inputs, placeholder = family.process_image(
            processor, self._options["image"], image.pixels, num_images
        )
        # Not always what a template writes: the processor may put others in its place.
        token_id: int = self._model.config.image_token_id
        token = (str(processor.tokenizer.convert_ids_to_tokens(token_id)), token_id)
        return self._processed("image", image.digest, inputs, placeholder, token)

    def video(self, video: CanonicalVideo) -> Processed:
        """A video's frames."""
        processor = self._processor
        metadata = VideoMetadata(
            total_num_frames=video.times.num_frames,
            fps=video.times.frames_per_second,
            frames_indices=list(video.indices),
        )
        inputs, placeholders = processor._process_videos(
            [video.frames],
            **{**self._options["video"], "video_metadata": [metadata], "do_sample_frames": False},
        )
        token = (processor.video_token, processor.video_token_id)
        return self._processed("video", video.digest, inputs, placeholders[0], token)

    def audio(self, audio: CanonicalAudio) -> Processed:
        """A sound."""
        processor = self._processor
        rate = processor.feature_extractor.sampling_rate
        inputs, placeholders = processor._process_audio(
            [audio.samples], **{**self._options["audio"], "sampling_rate": rate}
        )
        token = (processor.audio_token, processor.audio_token_id)
        return self._processed("audio", audio.digest, inputs, placeholders[0], token)

    def _processed(
        self,
        modality: str,
        digest: bytes,
        inputs: Mapping[str, Any],
        placeholder: str,
        row_token: tuple[str, int],
    ) -> Processed:
        identity = MediaIdentity(
            modality=modality,
            digest=digest,
            grid=self._model.family.grid(inputs, self._model.config),
            num_tokens=placeholder.count(row_token[0]),
        )
        # Processors add what only their placeholders and positions need.
        tensors = {
            name: _held(value, self._model.dtype)
            for name, value in inputs.items()
            if isinstance(value, torch.Tensor)
        }
        seconds = [float(second) for second in inputs.get("second_per_grid_ts", ())]
        item = MediaItem(identity, placeholder, row_token[1], seconds[0] if seconds else 1.0)
        return item, tensors


def _held(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What to keep of a processor's output: in the model's type, to which each encoder rounds it
    anyway, and without what it is a part of."""
    kept = tensor.to(dtype) if tensor.is_floating_point() else tensor
    is_part = kept.untyped_storage().nbytes() > kept.nbytes
    return kept.clone() if is_part else kept
