"""What a model family provides to the engine.

Must not know: how batches are formed, blocks, HTTP.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch

from chiasm_worker.models.decoder import Decoder
from chiasm_worker.models.digest import WeightDigests, WeightGroups


@dataclass(frozen=True, slots=True)
class PlacedItem:
    """A media item in a prompt, as the position scheme sees it."""

    start: int
    num_tokens: int
    grid: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PositionScheme:
    """The identity of a family's positions; the arithmetic is in `Family.positions`."""

    type: str
    theta: float
    scaling: str
    sections: tuple[int, ...]
    window: int


class VisionEncoder(Protocol):
    """A family's vision tower and projector, transformers' own."""

    def encode(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Features of one item, [num_tokens, (1 + num_deepstack) * hidden_size].

        Args:
            inputs: what the image processor made of one picture.
        """
        ...


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """What the encoder made of several items.

    Attributes:
        features: one output an item, as VisionEncoder.encode would give it.
        num_rows: patches or frames that the tower computed.
        num_padding_rows: those among them that stand for nothing.
    """

    features: Sequence[torch.Tensor]
    num_rows: int
    num_padding_rows: int = 0


@runtime_checkable
class BatchingEncoder(Protocol):
    """A VisionEncoder that can take several items in one call."""

    def batch_key(self, inputs: Mapping[str, torch.Tensor]) -> Hashable:
        """Items with equal keys may share a call without padding each other."""
        ...

    def encode_batch(self, batch: Sequence[Mapping[str, torch.Tensor]]) -> EncodedBatch:
        """Features of items with equal keys."""
        ...


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

    def split(self, model: Any, config: Any) -> tuple[Decoder, VisionEncoder, int]:
        """Our decoder, transformers' encoder and the number of DeepStack levels.

        Args:
            model: the transformers model, whose language side is given up by this call.
            config: its configuration.
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

    def grid(self, inputs: Mapping[str, torch.Tensor], config: Any) -> tuple[int, ...]:
        """What the image processor made of the picture's size."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run."""

    family: Family
    architecture: str
    path: Path
    config: Any
    processor: Any
    decoder: Decoder
    encoder: VisionEncoder
    num_deepstack: int
    eos_token_ids: frozenset[int]
    max_positions: int
    dtype: torch.dtype
    device: torch.device
    digests: WeightDigests
    num_bytes: int
