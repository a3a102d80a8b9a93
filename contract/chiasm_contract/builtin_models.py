"""The models inside the worker image and the identity that each is known to have.

`builtin_models.json` maps a model's name and the dtype it is loaded in to a part of its identity,
dotted field -> value: the digests of its weights and its position scheme. `make generate` writes
it from the model's own folder; the CRD's list of allowed `builtin` values is made of its keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from pydantic import TypeAdapter

from chiasm_contract.config import Dtype
from chiasm_contract.fingerprint import Value

FILE_NAME = "builtin_models.json"
_MODELS: TypeAdapter[dict[str, dict[Dtype, dict[str, Value]]]] = TypeAdapter(
    dict[str, dict[Dtype, dict[str, Value]]]
)


@cache
def builtin_models() -> Mapping[str, Mapping[Dtype, Mapping[str, Value]]]:
    """Model name -> dtype -> the identity fields that a worker serving it must report."""
    return _MODELS.validate_json(files("chiasm_contract").joinpath(FILE_NAME).read_bytes())


def builtin_identity(name: str, dtype: Dtype) -> Mapping[str, Value]:
    """The identity fields known of the built-in model `name` loaded as `dtype`.

    Raises: ValueError naming the models there are.
    """
    models = builtin_models()
    if name not in models:
        raise ValueError(f"There is no built-in model {name!r}; there are: {', '.join(models)}.")
    return models[name][dtype]
