"""The verdict on a worker's identity."""

from __future__ import annotations

from chiasm_contract.messages import IdentityReport
from chiasm_sidecar.guard import judge


def report(**fields: object) -> IdentityReport:
    return IdentityReport(compute_fp="a", repr_fp="b", incarnation="i", fields=fields)


def test_a_part_of_the_identity_is_enough_to_admit() -> None:
    verdict = judge({"a": 1.0, "c": [1, 2]}, report(a=1.0, b="x", c=[1, 2]))
    assert verdict.admitted
    assert verdict.message == "The worker's KV identity is the expected one."


def test_nothing_expected_admits_everything() -> None:
    assert judge({}, report(a=1)).admitted


def test_every_differing_field_is_named() -> None:
    verdict = judge({"a": 1, "b": "x", "c": True, "d": 4}, report(a=1, b="y", c=1))
    assert not verdict.admitted
    assert [difference.field for difference in verdict.differences] == ["b", "c", "d"]
    assert verdict.message == (
        "The worker's KV identity differs: b is 'y', expected 'x'; c is 1, expected True; "
        "d is missing, expected 4."
    )
