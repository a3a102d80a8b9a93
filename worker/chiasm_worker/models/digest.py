"""The digests of weights that make up a model's identity.

One digest is sha256 over the sorted (name, dtype, shape, sha256 of the bytes) of its tensors, as
they are loaded: the same file in another dtype is another model.

Must not know: files, families.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class WeightGroups:
    """The checkpoint's tensors by what they belong to, for the identity."""

    language: Mapping[str, torch.Tensor]
    vision_encoder: Mapping[str, torch.Tensor]
    projector: Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class WeightDigests:
    """64 hex digits per part of the model."""

    language: str
    vision_encoder: str
    projector: str


def digest_tensors(tensors: Mapping[str, torch.Tensor]) -> str:
    """The digest of a group of tensors."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        data = tensor.contiguous().cpu().view(-1).view(torch.uint8).numpy().data
        shape = "x".join(str(size) for size in tensor.shape)
        line = f"{name} {tensor.dtype} {shape} {hashlib.sha256(data).hexdigest()}\n"
        total.update(line.encode())
    return total.hexdigest()


def digest_weights(groups: WeightGroups) -> WeightDigests:
    """The digests of language model, vision encoder and projector."""
    return WeightDigests(
        language=digest_tensors(groups.language),
        vision_encoder=digest_tensors(groups.vision_encoder),
        projector=digest_tensors(groups.projector),
    )
