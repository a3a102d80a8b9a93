"""For any identity at all: one changed field is another digest, and no two share bytes."""

from __future__ import annotations

from typing import Any

import pytest
from chiasm_contract.fingerprint import (
    Compute,
    Identity,
    Repr,
    Scope,
    compute_fp,
    encoded,
    flatten,
    repr_fp,
    scope_fp,
)
from chiasm_contract.manifest import Manifest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

Part = Compute | Repr | Scope
UNRESOLVED = {"auto", "none", "null", "default", "unknown"}
DIGESTS = {Compute: compute_fp, Repr: repr_fp, Scope: scope_fp}


def values(field: Any) -> st.SearchStrategy[Any]:
    """Anything that a leaf accepts."""
    if any(getattr(item, "pattern", None) for item in field.metadata):
        return st.binary(min_size=32, max_size=32).map(bytes.hex)
    if field.annotation is int:
        return st.integers(0, 2**63)
    if field.annotation is float:
        floats = st.floats(allow_nan=False, allow_infinity=False)
        return floats.map(lambda value: value or 0.0)
    if field.annotation is str:
        words = st.text("aA0 .ü水𐅑", min_size=1, max_size=5)
        return words.filter(lambda word: word.lower() not in UNRESOLVED)
    return st.lists(st.integers(0, 2**63), max_size=3)


def parts(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    """Any field set of a model."""
    fields = {}
    for name, field in model.model_fields.items():
        kind = field.annotation
        nested = isinstance(kind, type) and issubclass(kind, BaseModel)
        fields[name] = parts(kind) if nested and kind is not None else values(field)
    return st.builds(model, **fields)


def leaves(model: type[BaseModel], prefix: str = "") -> dict[str, st.SearchStrategy[Any]]:
    """Dotted name -> what it accepts."""
    found = {}
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= leaves(kind, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = values(field)
    return found


def with_field(part: Part, name: str, value: Any) -> Part:
    tree = part.model_dump()
    node = tree
    *path, leaf = name.split(".")
    for step in path:
        node = node[step]
    node[leaf] = value
    return type(part).model_validate(tree)


ANY_PART = st.one_of(*map(parts, DIGESTS))


@pytest.mark.parametrize("model", DIGESTS, ids=lambda model: model.__name__)
@given(data=st.data())
def test_one_changed_field_is_another_digest(model: Any, data: st.DataObject) -> None:
    before = data.draw(parts(model))
    name = data.draw(st.sampled_from(sorted(leaves(model))))
    value = data.draw(leaves(model)[name])
    after = with_field(before, name, value)
    same = flatten(before)[name] == value
    assert (encoded(before) == encoded(after)) is same
    assert (DIGESTS[model](before) == DIGESTS[model](after)) is same


@given(ANY_PART, ANY_PART)
def test_no_two_field_sets_share_bytes(one: Part, other: Part) -> None:
    a, b = encoded(one), encoded(other)
    assert (a == b) is (one == other and type(one) is type(other))
    assert a == b or not a.startswith(b), "what is encoded says where it ends"


@given(parts(Compute), parts(Repr), parts(Scope))
def test_a_manifest_comes_back_whole_from_json(
    compute: Compute, representation: Repr, scope: Scope
) -> None:
    identity = Identity(compute=compute, repr=representation)
    manifest = Manifest.of(identity, scope)
    again = Manifest.model_validate_json(manifest.model_dump_json())
    assert again == manifest
    assert manifest.differences(again) == []
    assert Identity.from_fields(identity.fields()) == identity


@given(data=st.data())
def test_a_manifest_of_other_fields_is_refused(data: st.DataObject) -> None:
    identity = Identity(compute=data.draw(parts(Compute)), repr=data.draw(parts(Repr)))
    whole = Manifest.of(identity).model_dump()
    name = data.draw(st.sampled_from(sorted(whole["fields"])))
    domain, _, leaf = name.partition(".")
    model = {"compute": Compute, "repr": Repr, "scope": Scope}[domain]
    value = data.draw(leaves(model)[leaf].filter(lambda value: value != whole["fields"][name]))
    with pytest.raises(ValidationError, match=f"{domain}_fp is not the digest of the fields"):
        Manifest.model_validate({**whole, "fields": {**whole["fields"], name: value}})
