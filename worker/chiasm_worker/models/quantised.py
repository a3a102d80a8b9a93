"""Checkpoints whose language model compressed-tensors quantised: what is read, and what is refused.

config.json says how weights were quantised, and the names of a checkpoint's tensors say which: a
layer is quantised where the file holds its codes. The library itself is not needed.

Must not know: families, Triton, where anything is computed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from chiasm_worker.kernels.quantised_linear.packed import PackedWeight, Scheme, dequantise, repack
from chiasm_worker.models.digest import WeightGroups

Tensors = dict[str, torch.Tensor]

METHOD = "compressed-tensors"
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
# What a file holds of a quantised layer, beside a bias.
_PARTS = (
    "weight_packed", "weight_shape", "weight", "weight_scale", "weight_zero_point", "weight_g_idx",
)  # fmt: skip
# Projections that our decoder computes, by the end of their names.
_PROJECTION = re.compile(r"(?:^|\.)(layers\.\d+\.(?:self_attn|cross_attn|mlp)\.\w+_proj)$")


@dataclass(frozen=True)
class Quantisation:
    """How a checkpoint was quantised.

    Attributes:
        ignore: names of layers that were not, or "re:" and a pattern.
    """

    scheme: Scheme
    ignore: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """For the identity: form, bits, groups, symmetry."""
        scheme = self.scheme
        scales = f"group {scheme.group}" if scheme.group else "channel"
        symmetry = "symmetric" if scheme.symmetric else "asymmetric"
        return f"{scheme.form} int{scheme.bits} {scales} {symmetry}"

    def ignores(self, layer: str) -> bool:
        """Whether a layer of that name should not have been quantised."""
        return any(
            re.match(each[3:], layer) is not None if each.startswith("re:") else each == layer
            for each in self.ignore
        )


def quantisation_of(config: Any) -> Quantisation | None:
    """What a model's configuration says; None: that it is not quantised.

    Raises: ValueError naming the first thing that is not computed here.
    """
    given = getattr(config, "quantization_config", None)
    if given is None:
        return None
    told: dict[str, Any] = given if isinstance(given, dict) else given.to_dict()
    groups = told.get("config_groups") or {}
    sparsity = told.get("sparsity_config") or {}
    _refuse_unless("quant_method", told.get("quant_method"), (METHOD,))
    _refuse_unless("quantization_status", told.get("quantization_status"), ("compressed",))
    _refuse_unless("kv_cache_scheme", told.get("kv_cache_scheme"), (None,))
    _refuse_unless("transform_config", told.get("transform_config") or None, (None,))
    _refuse_unless("sparsity_config.format", sparsity.get("format"), (None, "dense"))
    _refuse_unless("the number of config_groups", len(groups), (1,))
    (group,) = groups.values()
    form = group.get("format") or told.get("format")
    return Quantisation(_scheme(group, str(form)), _ignored(told.get("ignore") or ()))


def _ignored(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        try:
            re.compile(name.removeprefix("re:"))
        except re.error as error:
            raise ValueError(
                f"config.json ignores the layers {name!r}, which is no pattern: {error}."
            ) from error
    return tuple(names)


def _scheme(group: Mapping[str, Any], form: str) -> Scheme:
    for part in ("input_activations", "output_activations"):
        _refuse_unless(part, group.get(part), (None,))
    weights = group.get("weights") or {}
    _refuse_unless("weights.type", weights.get("type", "int"), ("int",))
    _refuse_unless("weights.dynamic", weights.get("dynamic", False), (False,))
    _refuse_unless("weights.actorder", weights.get("actorder"), (None, "weight", "static"))
    _refuse_unless("weights.strategy", weights.get("strategy"), ("group", "channel"))
    size = weights.get("group_size") if weights["strategy"] == "group" else 0
    return Scheme(
        form, int(weights.get("num_bits", 0)), int(size or 0), bool(weights.get("symmetric", True))
    )


def _refuse_unless(what: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        shown = " or ".join("none" if each is None else repr(each) for each in allowed)
        raise ValueError(
            f"The model is quantised with {what} {value!r}; this engine takes {shown}: weights of "
            "4 or 8 bits by compressed-tensors, everything else unquantised. Quantise it anew or "
            "serve it with another engine."
        )


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
        self._parts = _take_layers(self._plain, quantisation.scheme)
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

    def state_dict(self) -> Tensors:
        """All tensors as an unquantised checkpoint would hold them."""
        dense = {
            f"{layer}.weight": dequantise(self.packed[name]).to(self._dtype)
            for name, layer in self._layers.items()
        }
        return {**self._plain, **dense}

    def let_go(self, groups: WeightGroups) -> None:
        """Free the dequantised weights of a model whose products are computed with packed ones."""
        for name in self._layers:
            weight = groups.language[f"{name}.weight"]
            weight.data = weight.new_empty(0)

    def attach(self, groups: WeightGroups, device: torch.device) -> int:
        """Give a model its packed weights, where it is computed; returns their bytes."""
        num_bytes = 0
        for name, packed in self.packed.items():
            parameter: Any = groups.language[f"{name}.weight"]
            parameter.packed_weight = packed.to(device)
            num_bytes += packed.num_bytes
        return num_bytes

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


def packed_weights(parameters: Mapping[str, torch.Tensor]) -> dict[str, PackedWeight]:
    """The packed weights that were attached to parameters, by the parameters' names."""
    found = {name: getattr(each, "packed_weight", None) for name, each in parameters.items()}
    return {name: packed for name, packed in found.items() if packed is not None}


def read_tensors(folder: Path) -> Tensors:
    """All tensors of a folder's safetensors files.

    Raises: OSError when there are none.
    """
    index = folder / _INDEX
    names = {_SINGLE}
    if index.is_file():
        names = set(json.loads(index.read_text())["weight_map"].values())
    tensors: Tensors = {}
    for name in sorted(names):
        tensors |= load_file(folder / name)
    return tensors


def _take_layers(tensors: Tensors, scheme: Scheme) -> dict[str, Tensors]:
    """The parts of each quantised layer, taken out of `tensors`."""
    packs = scheme.form == "pack-quantized"
    mark = ".weight_packed" if packs else ".weight_scale"
    layers = sorted(name.removesuffix(mark) for name in tensors if name.endswith(mark))
    if not layers:
        raise ValueError(
            "config.json says that the model is quantised, and the checkpoint holds no quantised "
            "layer. Write it again."
        )
    return {
        layer: {p: tensors.pop(f"{layer}.{p}") for p in _PARTS if f"{layer}.{p}" in tensors}
        for layer in layers
    }
