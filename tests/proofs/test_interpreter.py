"""The interpreter is wrong without a word; repaired it is right, and its checker finds faults."""

from __future__ import annotations

import pytest
from chiasm_proofs.child import Child, ProofError


def test_every_silent_error_is_one_and_is_repaired(
    interpreted: Child, names: dict[str, list[str]]
) -> None:
    found = {name: interpreted.ask("silent", name=name) for name in names["silent"]}
    assert len(found) >= 16
    assert not [name for name, was in found.items() if not was["repaired"]]
    # One that Triton mends is to be taken out of silent.py, and maybe of repair.py.
    assert not [name for name, was in found.items() if was["plain"]]


def test_a_sum_in_bf16_is_refused(interpreted: Child) -> None:
    assert "convert to fp32" in interpreted.ask("refused_sum")["said"]


@pytest.mark.parametrize("order", [0, 1, 2])
def test_every_planted_fault_is_found_in_any_order(
    interpreted: Child, names: dict[str, list[str]], order: int
) -> None:
    found = {name: interpreted.ask("planted", name=name, seed=order) for name in names["planted"]}
    assert len(found) >= 7
    assert not {name: was["findings"] for name, was in found.items() if not was["caught"]}


def test_every_code_of_a_quantised_cache(interpreted: Child, seed: int) -> None:
    assert interpreted.ask("codes", seed=seed)["faults"] == [], f"seed {seed}"


def test_a_launch_without_fault_has_no_finding(interpreted: Child, seed: int) -> None:
    answer = interpreted.ask("case", operation="norm", name="rms 5x96 bfloat16 residual", seed=seed)
    assert answer["faults"] == []


def test_a_worker_that_died_is_told_and_replaced(interpreted: Child) -> None:
    with pytest.raises(ProofError, match="ended with"):
        interpreted.ask("die")
    assert interpreted.ask("names")["planted"]


def test_a_kernel_that_differs_is_told(interpreted: Child) -> None:
    faults = " ".join(interpreted.ask("wrong_case")["faults"])
    for expected in (
        "equal: output 0",  # off by one
        "unharmed: x",  # an argument was changed
        "unharmed: what lies around",  # written outside of it
        "alone: row",  # depends on the batch
        "race",
    ):
        assert expected in faults, faults
