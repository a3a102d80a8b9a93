"""From the files of one request to what its prompt and the encoder need of them.

Must not know: HTTP, the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from chiasm_contract.config import MediaKind, MediaLimits, VisionConfig
from chiasm_contract.errors import InvalidRequest
from chiasm_contract.fingerprint import SHARED_SCOPE_FP
from chiasm_contract.messages import MEDIA_NAMES, ImagePart, MediaFiles, MediaPart, too_many_media

from chiasm_worker.modality.audio import SoundForm, decode_audio
from chiasm_worker.modality.compression import ImageCompression
from chiasm_worker.modality.frames import FrameChooser
from chiasm_worker.modality.image import decode_image
from chiasm_worker.modality.media import MediaItem, MediaProcessor, Processed
from chiasm_worker.modality.shared_media import MediaInputs, MediaSource, SharedMedia
from chiasm_worker.modality.video import decode_video
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.timeline.notes import UNNOTED, Notes


class MediaReader:
    """Reads the media of requests; safe to call from several threads."""

    def __init__(self, model: LoadedModel, limits: MediaLimits, vision: VisionConfig) -> None:
        self._limits = limits
        self._family = model.family
        self._processor = MediaProcessor(model)
        self._shared = SharedMedia()
        self._sound = SoundForm.of(getattr(model.processor, "feature_extractor", None))
        self._compression = ImageCompression(model, vision)
        self._choose = FrameChooser(
            getattr(model.processor, "video_processor", None), limits.videos.max_frames
        )

    def check(self, placed: Sequence[MediaPart], files: MediaFiles) -> None:
        """Raise a ClientFault for what needs no decoding to be refused."""
        for kind, name in MEDIA_NAMES.items():
            data = files.of(kind)
            indices = [part.index for part in placed if part.type == kind]
            count, limit = max(len(indices), len(data)), self._limits.max_per_prompt(kind)
            if count > limit:
                raise too_many_media(kind, count, limit, "messages")
            if unplaced := set(range(len(data))) - set(indices):
                raise InvalidRequest(
                    f"{name.title()} {min(unplaced) + 1} stands in no message; refer to it or "
                    "leave it out.",
                    param="messages",
                )

    def read(
        self,
        placed: Sequence[MediaPart],
        files: MediaFiles,
        scope_fp: str = SHARED_SCOPE_FP,
        notes: Notes = UNNOTED,
    ) -> tuple[list[MediaItem], list[MediaInputs]]:
        """The items in the order in which the conversation shows them, each at its own detail,
        and what the encoder takes of each.

        Args:
            placed: the media parts of the conversation.
            files: what they refer to.
            scope_fp: whose requests may share what is processed here.
            notes: where the time went.

        Raises: ClientFault when a file cannot be decoded or exceeds a limit, or when the model
        cannot show a picture at its detail.
        """
        num_images = sum(isinstance(part, ImagePart) for part in placed)
        inputs: dict[tuple[str, int], MediaInputs] = {}
        for kind in MEDIA_NAMES:
            for index, data in enumerate(files.of(kind)):
                source = self._source(kind, index, data, num_images, scope_fp)
                inputs[kind, index] = self._shared.read(source, notes)
        read = [inputs[part.type, part.index] for part in placed]
        shown = zip(placed, read, strict=True)
        return [self._shown(part, each.item) for part, each in shown], read

    def ready(self, inputs: MediaInputs) -> MediaInputs:
        """The same, made now if they were not: for those that the encoder will ask for."""
        return self._shared.ready(inputs)

    def _source(
        self, kind: MediaKind, index: int, data: bytes, num_images: int, scope_fp: str
    ) -> MediaSource:
        """File number `index` of its kind, and how it is read."""
        limits, processor, choose, sound = self._limits, self._processor, self._choose, self._sound
        how: dict[MediaKind, tuple[Callable[[bytes], Any], Callable[[Any], Processed]]] = {
            "image": (
                lambda data: decode_image(data, limits.images, index),
                lambda image: processor.image(image, num_images),
            ),
            "video": (
                lambda data: decode_video(data, limits.videos, choose, index),
                processor.video,
            ),
            "audio": (
                lambda data: decode_audio(data, limits.audios, sound, index),
                processor.audio,
            ),
        }
        variant = self._family.variant(num_images) if kind == "image" else 1
        return MediaSource(scope_fp, kind, variant, data, *how[kind])

    def _shown(self, part: MediaPart, item: MediaItem) -> MediaItem:
        if not isinstance(part, ImagePart):
            return item
        return self._compression.apply(item, part.detail, part.index)
