"""What a model family provides to the engine.

Must not know: how batches are formed, blocks, HTTP.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from chiasm_contract.config import MediaKind
from PIL import Image

from chiasm_worker.attention.choose import Choice
from chiasm_worker.layers.operations import Operations
from chiasm_worker.models.decoder import Decoder
from chiasm_worker.models.digest import WeightDigests, WeightGroups


@dataclass(frozen=True, slots=True)
class PlacedItem:
    """A media item in a prompt, as the position scheme sees it."""

    start: int
    num_tokens: int  # of the encoder's
    grid: tuple[int, ...]
    # (offset from start, length) of each unbroken run of encoder tokens.
    runs: tuple[tuple[int, int], ...] = ()
    modality: str = "image"
    # Of a video: what one step of the grid's first axis lasts, where the processor says so.
    seconds_per_step: float = 1.0
    # Rows and columns of the encoder's tokens that each token here stands for (compression).
    window: tuple[int, int] = (1, 1)


@dataclass(frozen=True, slots=True)
class PositionScheme:
    """The identity of a family's positions; the arithmetic is in `Family.positions`."""

    type: str
    theta: float
    scaling: str
    sections: tuple[int, ...]
    window: int


# The encoder's inputs of one media item, and what stands for it in a rendered prompt.
ProcessedMedia = tuple[Mapping[str, Any], str]


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """What the encoder made of several items.

    Attributes:
        features: one output an item, [num_tokens, (1 + num_deepstack) * hidden_size].
        num_rows: patches or frames that the tower computed.
        num_padding_rows: those among them that stand for nothing.
    """

    features: Sequence[torch.Tensor]
    num_rows: int
    num_padding_rows: int = 0


class MediaEncoder(Protocol):
    """A family's tower and projector, transformers' own.

    Inputs are what the processor made of one picture, video or sound, by name.
    """

    def batch_key(self, inputs: Mapping[str, torch.Tensor]) -> Hashable:
        """Items with equal keys may share a call without padding each other."""
        ...

    def encode_batch(self, batch: Sequence[Mapping[str, torch.Tensor]]) -> EncodedBatch:
        """Features of items with equal keys."""
        ...


class OneByOne:
    """Base of the encoders that take one item a call."""

    def batch_key(self, inputs: Mapping[str, torch.Tensor]) -> Hashable:
        """Nothing shares a call."""
        return object()

    def encode_batch(self, batch: Sequence[Mapping[str, torch.Tensor]]) -> EncodedBatch:
        """Features of items; see MediaEncoder."""
        features = [self.encode(inputs) for inputs in batch]
        return EncodedBatch(features, num_rows=sum(len(each) for each in features))

    def encode(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Features of one item, [num_tokens, hidden_size]."""
        raise NotImplementedError


class Family(Protocol):
    """One row of the registry: everything that is particular to a family of models."""

    @property
    def name(self) -> str:
        """What users call the family."""
        ...

    @property
    def architectures(self) -> tuple[str, ...]:
        """The transformers classes that it computes."""
        ...

    @property
    def modalities(self) -> tuple[MediaKind, ...]:
        """What its prompts may bring beside text."""
        ...

    @property
    def needs_media(self) -> bool:
        """Whether a prompt of words alone is one that it does not take."""
        ...

    @property
    def default_template(self) -> str:
        """The chat template for checkpoints that bring none; empty: those are refused."""
        ...

    def split(
        self, model: Any, config: Any, operations: Operations
    ) -> tuple[Decoder, MediaEncoder, int]:
        """Our decoder, transformers' encoder and the number of DeepStack levels.

        Args:
            model: the transformers model, whose language side is given up by this call.
            config: its configuration.
            operations: who computes our decoder's projections, norms and activations.
        """
        ...

    def weight_groups(self, model: Any) -> WeightGroups:
        """The model's tensors, grouped; call before `split`."""
        ...

    def position_scheme(self, config: Any) -> PositionScheme:
        """What the positions mean."""
        ...

    def positions(
        self, num_tokens: int, items: Sequence[PlacedItem], config: Any
    ) -> npt.NDArray[np.int64]:
        """Position ids [num_axes, num_tokens] of a prompt with media."""
        ...

    def lay_out(self, parts: Sequence[str], bos: str) -> list[str]:
        """What the family's processor makes of a rendered conversation before it is tokenised.

        Args:
            parts: the text before, between and behind the media.
            bos: the tokenizer's begin-of-text token.
        """
        ...

    def variant(self, num_images: int) -> int:
        """Equal numbers of pictures in a prompt that make no difference to one of them."""
        ...

    def process_image(
        self, processor: Any, options: Mapping[str, Any], image: Image.Image, num_images: int
    ) -> ProcessedMedia:
        """What the processor makes of one of a prompt's `num_images` pictures."""
        ...

    def grid(self, inputs: Mapping[str, torch.Tensor], config: Any) -> tuple[int, ...]:
        """What the processor made of an item's size."""
        ...

    def token_side(self, config: Any) -> int | None:
        """Cells of the grid along each side of one token.

        None where tokens form no plain grid (tiles, separators, a class token): such pictures
        cannot be compressed.
        """
        ...


class PicturesApart:
    """For families that look at each picture by itself and take what their templates write."""

    modalities: tuple[MediaKind, ...] = ("image",)
    needs_media = False
    default_template = ""

    def token_side(self, config: Any) -> int | None:
        """No plain grid unless a family says so."""
        return None

    def lay_out(self, parts: Sequence[str], bos: str) -> list[str]:
        """As the template writes it."""
        return list(parts)

    def variant(self, num_images: int) -> int:
        """Always the same."""
        return 1

    def process_image(
        self, processor: Any, options: Mapping[str, Any], image: Image.Image, num_images: int
    ) -> ProcessedMedia:
        """What the processor makes of the picture alone."""
        return process_images(processor, options, [image])


def process_images(
    processor: Any, options: Mapping[str, Any], images: list[Image.Image]
) -> ProcessedMedia:
    """What a processor makes of one prompt's pictures, and the placeholder of the first.

    The same path that the processor's own call takes, with its own options. The list is nested,
    because some processors count the pictures of each conversation.
    """
    inputs, placeholders = processor._process_images([images], **options)
    return inputs, placeholders[0]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run."""

    family: Family
    architecture: str
    path: Path
    config: Any
    processor: Any
    decoder: Decoder
    encoder: MediaEncoder
    num_deepstack: int
    eos_token_ids: frozenset[int]
    max_positions: int
    dtype: torch.dtype
    device: torch.device
    digests: WeightDigests
    num_bytes: int
    # Who computes the decoder and its attention.
    choice: Choice
    # How the language model's weights are quantised and computed with, for the identity.
    weight_quantization: str

    @property
    def media_width(self) -> int:
        """Numbers in a row of features: those of a token, once more for each DeepStack level."""
        return self.decoder.spec.hidden_size * (1 + self.num_deepstack)
