"""The verdict on a worker's identity."""

from __future__ import annotations

import pytest
from chiasm_contract.messages import IdentityReport
from chiasm_sidecar.guard import judge

from tests.sidecar.conftest import FIELDS, identity


def test_a_part_of_the_identity_is_enough_to_admit() -> None:
    expected = {name: FIELDS[name] for name in ("compute.position.theta", "repr.block_size")}
    verdict = judge(expected, identity())
    assert verdict.admitted
    assert verdict.message == "The worker's KV identity is the expected one."


def test_nothing_expected_admits_every_sound_identity() -> None:
    assert judge({}, identity()).admitted


@pytest.mark.parametrize("name", FIELDS)
def test_any_single_field_is_enough_to_reject(name: str) -> None:
    value = FIELDS[name]
    other = {
        str: lambda: "e" * 64,
        int: lambda: value + 1,
        float: lambda: value / 2,
        list: lambda: [*value, 1],
    }[type(value)]()
    verdict = judge(FIELDS, identity(**{name: other}))
    assert [difference.field for difference in verdict.differences] == [name]
    assert verdict.message == (
        f"The worker's KV identity differs: {name} is {other!r}, expected {value!r}."
    )


def test_every_differing_field_is_named() -> None:
    expected = {"repr.block_size": 32, "repr.layout": "token-major", "no.such.field": 1}
    verdict = judge(expected, identity())
    assert verdict.message == (
        "The worker's KV identity differs: no.such.field is missing, expected 1; "
        "repr.block_size is 16, expected 32; repr.layout is 'block-major', expected 'token-major'."
    )


def test_one_is_not_true() -> None:
    assert not judge({"repr.parallel_degree": True}, identity()).admitted


def test_digest_of_other_fields() -> None:
    report = identity().model_copy(update={"compute_fp": "0" * 64})
    verdict = judge({}, report)
    assert [difference.field for difference in verdict.differences] == ["compute_fp"]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {name: value for name, value in FIELDS.items() if name != "repr.layout"},
        {**FIELDS, "compute.new": 1},
        {**FIELDS, "compute": 1},
        {**FIELDS, "compute.weights.language.x": 1},
        {**FIELDS, "repr.layout": "auto"},
    ],
)
def test_fields_of_another_schema(fields: dict[str, object]) -> None:
    sound = identity()
    report = IdentityReport(
        compute_fp=sound.compute_fp, repr_fp=sound.repr_fp, incarnation="i", fields=fields
    )
    assert (
        "fields is 'other ones', expected 'those of identity schema 2'" in judge({}, report).message
    )
