"""How a checkpoint was quantised, by what compressed-tensors wrote into its config.json.

All that is not computed here is refused, and so is what is malformed: config.json is anyone's.

Must not know: families, tensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chiasm_worker.kernels.quantised_linear.packed import BITS, GROUPS, Scheme
from chiasm_worker.models.files import read_json

METHOD = "compressed-tensors"


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


def check_described(folder: Path) -> None:
    """Refuse a config.json that transformers cannot even read.

    Raises: ValueError when it is no JSON object or tells of quantisation in anything else.
    """
    given = read_json(folder / "config.json").get("quantization_config")
    if given is not None:
        _mapping("quantization_config", given)


def quantisation_of(config: Any) -> Quantisation | None:
    """What a model's configuration says; None: that it is not quantised.

    Raises: ValueError naming the first thing that is malformed or not computed here.
    """
    given = getattr(config, "quantization_config", None)
    if given is None:
        return None
    told = _mapping("quantization_config", given)
    groups = _mapping("config_groups", told.get("config_groups") or {})
    sparsity = _mapping("sparsity_config", told.get("sparsity_config") or {})
    _refuse_unless("quant_method", told.get("quant_method"), (METHOD,))
    _refuse_unless("quantization_status", told.get("quantization_status"), ("compressed",))
    _refuse_unless("kv_cache_scheme", told.get("kv_cache_scheme"), (None,))
    _refuse_unless("transform_config", told.get("transform_config") or None, (None,))
    _refuse_unless("sparsity_config.format", sparsity.get("format"), (None, "dense"))
    _refuse_unless("the number of config_groups", len(groups), (1,))
    ((name, given_group),) = groups.items()
    group = _mapping(f"config_groups.{name}", given_group)
    form = group.get("format") or told.get("format")
    ignored = told.get("ignore")
    return Quantisation(_scheme(group, str(form)), _ignored([] if ignored is None else ignored))


def _ignored(names: Any) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"config.json has {names!r} as quantization_config.ignore; it must be a list of the "
            "names of layers, or of 're:' and a pattern. Write it again."
        )
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
    weights = _mapping("weights", group.get("weights"))
    symmetric, strategy = weights.get("symmetric", True), weights.get("strategy")
    _refuse_unless("weights.type", weights.get("type", "int"), ("int",))
    _refuse_unless("weights.dynamic", weights.get("dynamic", False), (False,))
    _refuse_unless("weights.actorder", weights.get("actorder"), (None, "weight", "static"))
    _refuse_unless("weights.strategy", strategy, ("group", "channel"))
    _refuse_unless("weights.symmetric", symmetric, (True, False))
    _refuse_unless("weights.num_bits", weights.get("num_bits"), BITS)
    size = 0
    if strategy == "group":
        _refuse_unless("weights.group_size", weights.get("group_size"), GROUPS)
        size = int(weights["group_size"])
    return Scheme(form, int(weights["num_bits"]), size, symmetric)


def _mapping(what: str, value: Any) -> Mapping[str, Any]:
    """What should be a JSON object."""
    if not isinstance(value, Mapping):
        raise ValueError(
            f"config.json has {value!r} as {what} of its quantisation; it must be a JSON object. "
            "Write it again."
        )
    return value


def _refuse_unless(what: str, value: Any, allowed: tuple[Any, ...]) -> None:
    # 1 is no true in JSON.
    if not any(isinstance(value, bool) == isinstance(a, bool) and value == a for a in allowed):
        shown = " or ".join("none" if each is None else repr(each) for each in allowed)
        raise ValueError(
            f"The model is quantised with {what} {value!r}; this engine takes {shown}: weights of "
            "4 or 8 bits by compressed-tensors, everything else unquantised. Quantise it anew or "
            "serve it with another engine."
        )
