"""What a manifest says of two models that differ, and which ones are no manifests."""

from __future__ import annotations

from typing import Any

import pytest
from chiasm_contract.fingerprint import SHARED_SCOPE_FP, Identity
from chiasm_contract.manifest import Manifest

from tests.contract.test_fingerprint import COMPUTE, REPR


def manifest(**position: Any) -> Manifest:
    compute = {**COMPUTE, "position": {**COMPUTE["position"], **position}}
    return Manifest.of(Identity.model_validate({"compute": compute, "repr": REPR}))


def test_a_difference_names_the_field_and_both_values() -> None:
    a, b = manifest(theta=10000.0), manifest(theta=1000000.0, sections=[8])
    assert a.differences(b) == [
        "compute.position.sections is [16, 24, 24] in A, [8] in B",
        "compute.position.theta is 10000.0 in A, 1000000.0 in B",
    ]
    assert a.differences(a) == []
    assert a.compute_fp != b.compute_fp
    assert a.repr_fp == b.repr_fp
    assert a.scope_fp == SHARED_SCOPE_FP


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"compute.position.theta": "1"}, "theta\n  Input should be a valid number"),
        ({"compute.new": "x"}, "new\n  Extra inputs are not permitted"),
        ({"compute.weights": "x"}, "below it|stands below"),
        ({"compute.compute_dtype.x": "y"}, "stands below a field that has a value"),
        ({"scope.tenant": "auto"}, "is not resolved"),
        ({"compute.position.theta": -0.0}, "-0.0 equals 0.0"),
    ],
)
def test_other_fields_are_refused_by_name(change: dict[str, Any], words: str) -> None:
    whole = manifest().model_dump()
    changed = {**whole, "fields": {**whole["fields"], **change}}
    with pytest.raises(ValueError, match=words):
        Manifest.model_validate(changed)
