"""The digests of weights that make up a model's identity.

One digest is sha256 over the sorted (name, dtype, shape, sha256 of the bytes) of its tensors, as
they are loaded: the same file in another dtype is another model.

Must not know: files, families.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True, slots=True)
class WeightGroups:
    """The checkpoint's tensors by what they belong to, for the identity."""

    language: Mapping[str, torch.Tensor]
    vision_encoder: Mapping[str, torch.Tensor]
    projector: Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class WeightDigests:
    """64 hex digits per part of the model.

    Attributes:
        tensors: sha256 of a tensor's bytes -> the part that it belongs to.
    """

    language: str
    vision_encoder: str
    projector: str
    tensors: Mapping[str, str] = field(default_factory=dict, repr=False)


def digest_weights(groups: WeightGroups) -> WeightDigests:
    """The digests of language model, vision encoder and projector, and of each tensor in them."""
    parts = {
        "language": groups.language,
        "vision_encoder": groups.vision_encoder,
        "projector": groups.projector,
    }
    digests = {part: _by_name(tensors) for part, tensors in parts.items()}
    return WeightDigests(
        language=_whole(groups.language, digests["language"]),
        vision_encoder=_whole(groups.vision_encoder, digests["vision_encoder"]),
        projector=_whole(groups.projector, digests["projector"]),
        tensors={digest: part for part, each in digests.items() for digest in each.values()},
    )


def _by_name(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """sha256 of each tensor's bytes."""
    return {name: _content(tensors[name].detach()) for name in tensors}


def _content(tensor: torch.Tensor) -> str:
    data = tensor.contiguous().cpu().view(-1).view(torch.uint8).numpy().data
    return hashlib.sha256(data).hexdigest()


def _whole(tensors: Mapping[str, torch.Tensor], digests: Mapping[str, str]) -> str:
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        shape = "x".join(str(size) for size in tensor.shape)
        total.update(f"{name} {tensor.dtype} {shape} {digests[name]}\n".encode())
    return total.hexdigest()
