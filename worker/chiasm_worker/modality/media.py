"""From canonical pixels to what the model's encoder takes, by transformers' own processors.

Requests of one scope that bring the same item at the same time share one processed copy; those of
another would notice by their time that it was there.

Must not know: prompts, batches.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from chiasm_contract.fingerprint import SHARED_SCOPE_FP
from transformers.video_utils import VideoMetadata

from chiasm_worker.kvcache.prefix_cache import MediaIdentity
from chiasm_worker.modality.audio import CanonicalAudio
from chiasm_worker.modality.image import CanonicalImage
from chiasm_worker.modality.video import CanonicalVideo
from chiasm_worker.models.base import LoadedModel


class MediaItem:
    """A processed picture, video or sound: its identity and the encoder's inputs."""

    def __init__(
        self,
        identity: MediaIdentity,
        inputs: Mapping[str, torch.Tensor],
        placeholder: str,
        row_token_id: int,
        seconds_per_step: float = 1.0,
    ) -> None:
        self.identity = identity
        self.inputs = inputs
        # What stands for the item in the rendered prompt, before tokenisation. It may hold
        # ordinary words and separators beside the tokens that stand for the encoder's rows.
        self.placeholder = placeholder
        self.row_token_id = row_token_id
        self.seconds_per_step = seconds_per_step


class MediaPreparer:
    """Runs the processors; safe to call from several threads."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._processor: Any = model.processor
        options = self._processor._merge_kwargs(
            tokenizer_init_kwargs=self._processor.tokenizer.init_kwargs, return_tensors="pt"
        )
        self._image_options: Mapping[str, Any] = options["images_kwargs"]
        self._video_options: Mapping[str, Any] = options["videos_kwargs"]
        self._audio_options: Mapping[str, Any] = options["audio_kwargs"]
        self._live: weakref.WeakValueDictionary[tuple[str, bytes, int], MediaItem] = (
            weakref.WeakValueDictionary()
        )
        self._lock = threading.Lock()

    def image(
        self, image: CanonicalImage, num_images: int = 1, scope_fp: str = SHARED_SCOPE_FP
    ) -> MediaItem:
        """The item for one of a prompt's `num_images` pictures."""
        variant = self._model.family.variant(num_images)
        key = (scope_fp, image.digest, variant)
        return self._shared(key, lambda: self._image(image, num_images))

    def video(self, video: CanonicalVideo, scope_fp: str = SHARED_SCOPE_FP) -> MediaItem:
        """The item for a video's frames."""
        return self._shared((scope_fp, video.digest, 1), lambda: self._video(video))

    def audio(self, audio: CanonicalAudio, scope_fp: str = SHARED_SCOPE_FP) -> MediaItem:
        """The item for a sound."""
        return self._shared((scope_fp, audio.digest, 1), lambda: self._audio(audio))

    def _shared(self, key: tuple[str, bytes, int], process: Callable[[], MediaItem]) -> MediaItem:
        """The item, processed unless a live request of its scope already holds it."""
        with self._lock:
            item = self._live.get(key)
        if item is None:
            item = process()
            with self._lock:
                item = self._live.setdefault(key, item)
        return item

    def _image(self, image: CanonicalImage, num_images: int) -> MediaItem:
        processor, family = self._processor, self._model.family
        inputs, placeholder = family.process_image(
            processor, self._image_options, image.pixels, num_images
        )
        # Not always what a template writes: the processor may put others in its place.
        token_id: int = self._model.config.image_token_id
        token = (str(processor.tokenizer.convert_ids_to_tokens(token_id)), token_id)
        return self._item("image", image.digest, inputs, placeholder, token)

    def _video(self, video: CanonicalVideo) -> MediaItem:
        processor = self._processor
        metadata = VideoMetadata(
            total_num_frames=video.times.num_frames,
            fps=video.times.frames_per_second,
            frames_indices=list(video.indices),
        )
        inputs, placeholders = processor._process_videos(
            [video.frames],
            **{**self._video_options, "video_metadata": [metadata], "do_sample_frames": False},
        )
        token = (processor.video_token, processor.video_token_id)
        return self._item("video", video.digest, inputs, placeholders[0], token)

    def _audio(self, audio: CanonicalAudio) -> MediaItem:
        processor = self._processor
        rate = processor.feature_extractor.sampling_rate
        inputs, placeholders = processor._process_audio(
            [audio.samples], **{**self._audio_options, "sampling_rate": rate}
        )
        token = (processor.audio_token, processor.audio_token_id)
        return self._item("audio", audio.digest, inputs, placeholders[0], token)

    def _item(
        self,
        modality: str,
        digest: bytes,
        inputs: Mapping[str, Any],
        placeholder: str,
        row_token: tuple[str, int],
    ) -> MediaItem:
        identity = MediaIdentity(
            modality=modality,
            digest=digest,
            grid=self._model.family.grid(inputs, self._model.config),
            num_tokens=placeholder.count(row_token[0]),
        )
        # Processors add what only their placeholders and positions need.
        tensors = {n: value for n, value in inputs.items() if isinstance(value, torch.Tensor)}
        seconds = [float(second) for second in inputs.get("second_per_grid_ts", ())]
        return MediaItem(
            identity, tensors, placeholder, row_token[1], seconds[0] if seconds else 1.0
        )
