"""From canonical pixels to what the model's encoder takes, by transformers' own image processor.

Requests that bring the same picture at the same time share one processed copy.

Must not know: prompts, batches.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any

import torch

from chiasm_worker.kvcache.prefix_cache import MediaIdentity
from chiasm_worker.modality.image import CanonicalImage
from chiasm_worker.models.base import LoadedModel


class MediaItem:
    """A processed picture: its identity and the encoder's inputs."""

    def __init__(
        self, identity: MediaIdentity, inputs: Mapping[str, torch.Tensor], placeholder: str
    ) -> None:
        self.identity = identity
        self.inputs = inputs
        # What stands for the picture in the rendered prompt, before tokenisation.
        self.placeholder = placeholder


class ImagePreparer:
    """Runs the image processor; safe to call from several threads."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._processor: Any = model.processor
        self._live: weakref.WeakValueDictionary[bytes, MediaItem] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def prepare(self, image: CanonicalImage) -> MediaItem:
        """The item for a picture, processed unless a live request already holds it."""
        with self._lock:
            item = self._live.get(image.digest)
        if item is None:
            item = self._process(image)
            with self._lock:
                item = self._live.setdefault(image.digest, item)
        return item

    def _process(self, image: CanonicalImage) -> MediaItem:
        inputs = self._processor.image_processor(images=[image.pixels], return_tensors="pt")
        placeholder: str = self._processor.replace_image_token(inputs, image_idx=0)
        token: str = self._processor.image_token
        identity = MediaIdentity(
            modality="image",
            digest=image.digest,
            grid=self._model.family.grid(inputs, self._model.config),
            num_tokens=len(placeholder) // len(token),
        )
        return MediaItem(identity, dict(inputs), placeholder)
