"""The models inside the worker image and the identity that each is known to have.

`builtin_models.json` maps a model's name to a part of its identity, dotted field -> value (the
digests of its weights among them). It is written by `tools/generate.py` from what a worker
reported; the CRD's list of allowed `builtin` values is made of its keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from pydantic import TypeAdapter

from chiasm_contract.fingerprint import Value

FILE_NAME = "builtin_models.json"
_MODELS: TypeAdapter[dict[str, dict[str, Value]]] = TypeAdapter(dict[str, dict[str, Value]])


@cache
def builtin_models() -> Mapping[str, Mapping[str, Value]]:
    """Model name -> the identity fields that a worker serving it must report."""
    return _MODELS.validate_json(files("chiasm_contract").joinpath(FILE_NAME).read_bytes())


def builtin_identity(name: str) -> Mapping[str, Value]:
    """The identity fields known of the built-in model `name`.

    Raises: ValueError naming the models there are.
    """
    models = builtin_models()
    if name not in models:
        raise ValueError(f"There is no built-in model {name!r}; there are: {', '.join(models)}.")
    return models[name]
