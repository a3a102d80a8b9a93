"""Identity values as text in a resource."""

from __future__ import annotations

from typing import get_args

import pytest
from chiasm_contract.api import identity_fields
from chiasm_contract.builtin_models import builtin_identity, builtin_models
from chiasm_contract.config import Dtype
from chiasm_contract.fingerprint import _NUMBERS


def test_every_identity_field_can_be_pinned() -> None:
    numbered = {f"{part}.{name}" for part in ("compute", "repr") for name in _NUMBERS[part]}
    assert set(identity_fields.NAMES) == numbered


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compute.compute_dtype", "float32"),
        ("compute.position.theta", 10000.0),
        ("compute.position.sections", [16, 24, 24]),
        ("repr.block_size", 16),
    ],
)
def test_text_and_back(name: str, value: object) -> None:
    text = identity_fields.to_text(value)  # type: ignore[arg-type]
    parsed = identity_fields.parse({name: text})
    assert parsed == {name: value}
    assert type(parsed[name]) is type(value)


@pytest.mark.parametrize(
    ("pinned", "message"),
    [
        ({"weights": "x"}, "'weights' is no identity field; there are: compute.attention"),
        ({"repr.block_size": "many"}, "repr.block_size cannot be 'many'"),
        ({"compute.weights.language": "latest"}, "compute.weights.language cannot be 'latest'"),
        ({"compute.compute_dtype": "auto"}, "compute.compute_dtype cannot be 'auto'"),
    ],
)
def test_wrong_pins_are_named(pinned: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        identity_fields.parse(pinned)


@pytest.mark.parametrize("dtype", get_args(Dtype))
def test_builtin_models_name_identity_fields_only(dtype: Dtype) -> None:
    assert "demo" in builtin_models()
    for model in builtin_models():
        fields = builtin_identity(model, dtype)
        assert {"compute.weights.language", "compute.weights.vision_encoder"} <= set(fields)
        assert set(fields) <= set(identity_fields.NAMES)
        text = {name: identity_fields.to_text(value) for name, value in fields.items()}
        assert identity_fields.parse(text) == fields


def test_an_unknown_builtin_model_is_named() -> None:
    with pytest.raises(ValueError, match="no built-in model 'gpt'; there are: demo"):
        builtin_identity("gpt", "float32")
