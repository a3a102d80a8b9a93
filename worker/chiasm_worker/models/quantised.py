"""Checkpoints whose language model compressed-tensors quantised: what is read, and what is refused.

config.json says how weights were quantised (quantisation.py), and a checkpoint's tensors say which:
a layer is quantised where the file holds anything that only quantised layers have. The library
itself is not needed.

Must not know: families, Triton, where anything is computed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from chiasm_worker.kernels.quantised_linear.packed import (
    FLOATS,
    PackedWeight,
    dequantise,
    repack,
)
from chiasm_worker.models.digest import WeightGroups
from chiasm_worker.models.files import Tensors, read_tensors
from chiasm_worker.models.quantisation import Quantisation, quantisation_of

# What a file holds of a quantised layer, beside a bias.
_PARTS = (
    "weight_packed", "weight_shape", "weight", "weight_scale", "weight_zero_point", "weight_g_idx",
)  # fmt: skip
# Projections that our decoder computes, by the end of their names.
_PROJECTION = re.compile(r"(?:^|\.)(layers\.\d+\.(?:self_attn|cross_attn|mlp)\.\w+_proj)$")


class QuantisedCheckpoint:
    """A folder's tensors, quantised layers among them.

    Args:
        dtype: what weights are dequantised to.

    Raises: ValueError for layers that are not the language model's projections, that the
    configuration ignores, or that `repack` refuses.
    """

    def __init__(self, folder: Path, quantisation: Quantisation, dtype: torch.dtype) -> None:
        self.quantisation = quantisation
        self._dtype = dtype
        self._plain = read_tensors(folder)
        self._parts = _take_layers(self._plain)
        # The decoder's name of each layer -> the checkpoint's.
        self._layers: dict[str, str] = {}
        for layer in self._parts:
            self._layers[self._decoder_name(layer)] = layer
        self.packed: dict[str, PackedWeight] = {
            name: repack(layer, self._parts[layer], quantisation.scheme)
            for name, layer in self._layers.items()
        }

    def _decoder_name(self, layer: str) -> str:
        """What our decoder calls a layer of the checkpoint."""
        found = _PROJECTION.search(layer)
        if self.quantisation.ignores(layer):
            raise ValueError(
                f"The layer {layer!r} is quantised, and config.json ignores it; the checkpoint "
                "contradicts itself. Write it again."
            )
        if found is None:
            raise ValueError(
                f"The layer {layer!r} is quantised; only the projections of the language model's "
                "layers may be. Quantise the model again and ignore it."
            )
        name = found[1]
        if name in self._layers:
            raise ValueError(
                f"{self._layers[name]!r} and {layer!r} are quantised; only the projections of the "
                "language model's layers may be. Quantise the model again and ignore the others."
            )
        return name

    def take_state_dict(self) -> Tensors:
        """All tensors as an unquantised checkpoint would hold them; none of them is kept here."""
        dense = {
            f"{layer}.weight": dequantise(self.packed[name]).to(self._dtype)
            for name, layer in self._layers.items()
        }
        plain, self._plain = self._plain, {}
        return {**plain, **dense}

    def own_groups(self, groups: WeightGroups) -> WeightGroups:
        """The groups with the file's own tensors in place of those that were dequantised.

        Raises: ValueError for a quantised layer that is no part of the language model.
        """
        language = dict(groups.language)
        for name, layer in self._layers.items():
            weight = language.pop(f"{name}.weight", None)
            if weight is None or not _holds(weight, self.packed[name], self._dtype):
                raise ValueError(
                    f"The layer {layer!r} is quantised and is none of the language model's, whose "
                    "projections only may be. Quantise the model again and ignore it."
                )
            parts = self._parts[layer]
            language |= {f"{name}.{part}": tensor for part, tensor in parts.items()}
        return replace(groups, language=language)


def quantised_checkpoint(
    folder: Path, config: Any, dtype: torch.dtype
) -> QuantisedCheckpoint | None:
    """What a folder holds, if its configuration says that it is quantised.

    Raises: ValueError for what is not computed here.
    """
    quantisation = quantisation_of(config)
    return None if quantisation is None else QuantisedCheckpoint(folder, quantisation, dtype)


def _holds(weight: torch.Tensor, packed: PackedWeight, dtype: torch.dtype) -> bool:
    return torch.equal(weight.detach().to(dtype), dequantise(packed).to(dtype))


def _take_layers(tensors: Tensors) -> dict[str, Tensors]:
    """The parts of each quantised layer, taken out of `tensors`."""
    layers = sorted({name.rpartition(".")[0] for name in tensors if _is_quantised(name, tensors)})
    if not layers:
        raise ValueError(
            "config.json says that the model is quantised, and the checkpoint holds no quantised "
            "layer. Write it again."
        )
    return {
        layer: {p: tensors.pop(f"{layer}.{p}") for p in _PARTS if f"{layer}.{p}" in tensors}
        for layer in layers
    }


def _is_quantised(name: str, tensors: Tensors) -> bool:
    """Whether only a quantised layer has a tensor like this; what it lacks, `repack` says."""
    part = name.rpartition(".")[2]
    codes = part == "weight" and tensors[name].dtype not in FLOATS
    return codes or (part != "weight" and part in _PARTS)
