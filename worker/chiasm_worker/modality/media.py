"""From canonical pixels to what the model's encoder takes, by transformers' own processors.

Requests of one scope that hold the same item at the same time share one copy of its inputs; those
of another would notice by their time that it was there.

Must not know: prompts, batches.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from chiasm_contract.fingerprint import SHARED_SCOPE_FP
from transformers.video_utils import VideoMetadata

from chiasm_worker.kvcache.prefix_cache import MediaIdentity
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


class MediaInputs:
    """What the encoder takes of an item: one copy for all requests that hold it at a time.

    Attributes:
        item: whose they are, at detail 'high': the encoder's work is the same at each.
    """

    def __init__(self, item: MediaItem, tensors: Mapping[str, torch.Tensor]) -> None:
        self.item = item
        self._tensors = tensors

    @property
    def num_bytes(self) -> int:
        """Bytes that whoever holds this keeps in memory."""
        return sum(tensor.nbytes for tensor in self._tensors.values())

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """By the names under which the model takes them."""
        return self._tensors


class MediaPreparer:
    """Runs the processors; safe to call from several threads."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._processor: Any = model.processor
        self._options = resolved_options(self._processor)
        self._live: weakref.WeakValueDictionary[tuple[str, bytes, int], MediaInputs] = (
            weakref.WeakValueDictionary()
        )
        self._lock = threading.Lock()

    def image(
        self, image: CanonicalImage, num_images: int = 1, scope_fp: str = SHARED_SCOPE_FP
    ) -> MediaInputs:
        """The inputs of one of a prompt's `num_images` pictures."""
        variant = self._model.family.variant(num_images)
        key = (scope_fp, image.digest, variant)
        return self._shared(key, lambda: self._image(image, num_images))

    def video(self, video: CanonicalVideo, scope_fp: str = SHARED_SCOPE_FP) -> MediaInputs:
        """The inputs of a video's frames."""
        return self._shared((scope_fp, video.digest, 1), lambda: self._video(video))

    def audio(self, audio: CanonicalAudio, scope_fp: str = SHARED_SCOPE_FP) -> MediaInputs:
        """The inputs of a sound."""
        return self._shared((scope_fp, audio.digest, 1), lambda: self._audio(audio))

    def _shared(
        self, key: tuple[str, bytes, int], process: Callable[[], MediaInputs]
    ) -> MediaInputs:
        """The inputs, processed unless a live request of its scope already holds them."""
        with self._lock:
            inputs = self._live.get(key)
        if inputs is None:
            inputs = process()
            with self._lock:
                inputs = self._live.setdefault(key, inputs)
        return inputs

    def _image(self, image: CanonicalImage, num_images: int) -> MediaInputs:
        processor, family = self._processor, self._model.family
        inputs, placeholder = family.process_image(
            processor, self._options["image"], image.pixels, num_images
        )
        # Not always what a template writes: the processor may put others in its place.
        token_id: int = self._model.config.image_token_id
        token = (str(processor.tokenizer.convert_ids_to_tokens(token_id)), token_id)
        return self._inputs("image", image.digest, inputs, placeholder, token)

    def _video(self, video: CanonicalVideo) -> MediaInputs:
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
        return self._inputs("video", video.digest, inputs, placeholders[0], token)

    def _audio(self, audio: CanonicalAudio) -> MediaInputs:
        processor = self._processor
        rate = processor.feature_extractor.sampling_rate
        inputs, placeholders = processor._process_audio(
            [audio.samples], **{**self._options["audio"], "sampling_rate": rate}
        )
        token = (processor.audio_token, processor.audio_token_id)
        return self._inputs("audio", audio.digest, inputs, placeholders[0], token)

    def _inputs(
        self,
        modality: str,
        digest: bytes,
        inputs: Mapping[str, Any],
        placeholder: str,
        row_token: tuple[str, int],
    ) -> MediaInputs:
        identity = MediaIdentity(
            modality=modality,
            digest=digest,
            grid=self._model.family.grid(inputs, self._model.config),
            num_tokens=placeholder.count(row_token[0]),
        )
        # Processors add what only their placeholders and positions need.
        tensors = {n: value for n, value in inputs.items() if isinstance(value, torch.Tensor)}
        seconds = [float(second) for second in inputs.get("second_per_grid_ts", ())]
        item = MediaItem(identity, placeholder, row_token[1], seconds[0] if seconds else 1.0)
        return MediaInputs(item, tensors)
