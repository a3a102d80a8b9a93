"""An identity's digests: every field counts, nothing unresolved gets in, and they never move."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from chiasm_contract import fingerprint
from chiasm_contract.fingerprint import Compute, Identity, Repr, Scope
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

COMPUTE: dict[str, Any] = {
    "weights": {"language": "a" * 64, "vision_encoder": "b" * 64, "projector": "c" * 64},
    "model": {"config": "e" * 64},
    "processor": {"config": "d" * 64, "resize_backend": "pillow", "library_version": "13.0.1"},
    "position": {
        "type": "mrope",
        "theta": 1000000.0,
        "scaling": "unscaled",
        "sections": [16, 24, 24],
        "window": 0,
    },
    "compute_dtype": "float32",
    "weight_quantization": "unquantized",
    "calibration": "uncalibrated",
    "attention_numerics": "torch-cpu-1",
}
REPR: dict[str, Any] = {
    "schema_version": 1,
    "kv_dtype": {"text": "float32", "vision": "float32"},
    "scale_mode": "unscaled",
    "layout": "block-major",
    "block_size": 16,
    "num_layers": 4,
    "num_kv_heads": 2,
    "head_dim": 64,
    "parallel_degree": 1,
    "parallel_rank": 0,
}


def identity() -> Identity:
    """One valid identity, always the same."""
    return Identity.model_validate({"compute": COMPUTE, "repr": REPR})


WORDS = st.text("abcdefgh-.0123456789", min_size=1, max_size=12)
COUNTS = st.integers(0, 2**63)
REPRS = st.builds(
    lambda words, counts: Repr.model_validate(
        {
            "schema_version": counts[0],
            "kv_dtype": {"text": words[0], "vision": words[1]},
            "scale_mode": words[2],
            "layout": words[3],
            "block_size": counts[1],
            "num_layers": counts[2],
            "num_kv_heads": counts[3],
            "head_dim": counts[4],
            "parallel_degree": counts[5],
            "parallel_rank": counts[6],
        }
    ),
    st.lists(WORDS, min_size=4, max_size=4),
    st.lists(COUNTS, min_size=7, max_size=7),
)


# If one of these changes, every cache that was written before becomes unreadable: raise SCHEMA.
GOLDEN_COMPUTE = "6e812469ad46a89579cf136050af3c41430d46d2724651c4268bd13f5a923772"
GOLDEN_REPR = "680c1c6686eea9417649308af477c7f3f74d92693a77cc57188fc1ba59fb48a4"
GOLDEN_SCOPE = "40a3032c1048f43d1667799925e4524980e8b973ffd16be141c9feca71c4a2ef"
SCOPE = {"tenant": "t" * 8, "adapter": "base", "track": "stable"}


def leaves(node: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in node.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name)


def changed(node: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    copied = copy.deepcopy(node)
    target = copied
    for name in path[:-1]:
        target = target[name]
    target[path[-1]] = value
    return copied


def another(value: Any) -> Any:
    match value:
        case str():
            return "0" * 64 if len(value) == 64 else value + "x"
        case list():
            return [*value, 1]
        case float():
            return value + 0.5
    return value + 1


CASES = [
    (Compute, COMPUTE, fingerprint.compute_fp),
    (Repr, REPR, fingerprint.repr_fp),
    (Scope, SCOPE, fingerprint.scope_fp),
]


def test_golden_digests() -> None:
    assert fingerprint.compute_fp(identity().compute) == GOLDEN_COMPUTE
    assert fingerprint.repr_fp(identity().repr) == GOLDEN_REPR
    assert fingerprint.scope_fp(Scope(**SCOPE)) == GOLDEN_SCOPE


@pytest.mark.parametrize(
    ("model", "base", "digest", "path"),
    [(*case, path) for case in CASES for path in leaves(case[1])],
    ids=lambda item: ".".join(item) if isinstance(item, tuple) else "",
)
def test_changing_any_one_field_changes_the_digest(
    model: type[BaseModel], base: dict[str, Any], digest: Any, path: tuple[str, ...]
) -> None:
    value: Any = base
    for name in path:
        value = value[name]
    other = changed(base, path, another(value))
    assert digest(model.model_validate(base)) != digest(model.model_validate(other))


@pytest.mark.parametrize(
    ("model", "base", "path"),
    [(model, base, path) for model, base, _ in CASES for path in leaves(base)],
    ids=lambda item: ".".join(item) if isinstance(item, tuple) else "",
)
@pytest.mark.parametrize("value", [None, "", "auto", "default", "None", float("nan")], ids=repr)
def test_nothing_unresolved_gets_in(
    model: type[BaseModel], base: dict[str, Any], path: tuple[str, ...], value: Any
) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(changed(base, path, value))


@pytest.mark.parametrize("model", [Compute, Repr, Scope])
def test_field_sets_are_closed(model: type[BaseModel]) -> None:
    base = {Compute: COMPUTE, Repr: REPR, Scope: SCOPE}[model]
    with pytest.raises(ValidationError, match="Extra inputs"):
        model.model_validate({**base, "flavour": "sweet"})
    for name in base:
        with pytest.raises(ValidationError, match="required"):
            model.model_validate({key: value for key, value in base.items() if key != name})


def test_every_field_has_its_own_number() -> None:
    for model, base, domain in (
        (Compute, COMPUTE, "compute"),
        (Repr, REPR, "repr"),
        (Scope, SCOPE, "scope"),
    ):
        numbers = fingerprint._NUMBERS[domain]
        assert set(fingerprint.flatten(model.model_validate(base))) == set(numbers)
        assert len(set(numbers.values())) == len(numbers)


@given(REPRS, REPRS)
def test_no_two_field_sets_share_a_digest(one: Repr, other: Repr) -> None:
    assert (fingerprint.repr_fp(one) == fingerprint.repr_fp(other)) == (one == other)


@pytest.mark.parametrize("part", ["compute", "repr"])
def test_fields_are_named_with_their_part(part: str) -> None:
    fields = identity().fields()
    assert {name for name in fields if name.startswith(f"{part}.")}
    assert len(fields) == len(fingerprint._NUMBERS["compute"]) + len(fingerprint._NUMBERS["repr"])


def test_differences_name_field_expected_and_seen() -> None:
    seen = identity().fields()
    expected = {
        "compute.compute_dtype": "bfloat16",
        "compute.position.theta": 1000000.0,
        "repr.flavour": "sweet",
    }
    found = fingerprint.differences(expected, seen)
    assert [str(item) for item in found] == [
        "compute.compute_dtype is 'float32', expected 'bfloat16'",
        "repr.flavour is missing, expected 'sweet'",
    ]


def test_a_number_of_another_type_is_a_difference() -> None:
    assert fingerprint.differences({"repr.block_size": 16.0}, {"repr.block_size": 16})
    assert fingerprint.differences({"repr.block_size": True}, {"repr.block_size": 1})
    assert not fingerprint.differences({"repr.block_size": 16}, {"repr.block_size": 16})


def test_equal_identities_have_no_difference() -> None:
    fields = Identity.model_validate(identity().model_dump()).fields()
    assert not fingerprint.differences(fields, fields)
