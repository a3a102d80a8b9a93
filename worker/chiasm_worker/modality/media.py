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
        self,
        identity: MediaIdentity,
        inputs: Mapping[str, torch.Tensor],
        placeholder: str,
        row_token_id: int,
    ) -> None:
        self.identity = identity
        self.inputs = inputs
        # What stands for the picture in the rendered prompt, before tokenisation. It may hold
        # ordinary words and separators beside the tokens that stand for the encoder's rows.
        self.placeholder = placeholder
        self.row_token_id = row_token_id


class ImagePreparer:
    """Runs the image processor; safe to call from several threads."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._processor: Any = model.processor
        self._options: Mapping[str, Any] = self._processor._merge_kwargs(
            tokenizer_init_kwargs=self._processor.tokenizer.init_kwargs, return_tensors="pt"
        )["images_kwargs"]
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
        processor, family = self._processor, self._model.family
        # The same path that the processor's own call takes, with its own options. Nested, because
        # some processors count the pictures of each conversation.
        inputs, placeholders = processor._process_images([[image.pixels]], **self._options)
        identity = MediaIdentity(
            modality="image",
            digest=image.digest,
            grid=family.grid(inputs, self._model.config),
            num_tokens=placeholders[0].count(processor.image_token),
        )
        return MediaItem(identity, _tensors(inputs), placeholders[0], processor.image_token_id)


def _tensors(inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """What the encoder may take; processors add what only their placeholders need."""
    return {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
