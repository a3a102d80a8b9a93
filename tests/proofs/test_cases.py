"""Kernels against their references on the interpreter; BENCH=kernel_equality runs all cases."""

from __future__ import annotations

import pytest
from chiasm_proofs.child import Child
from chiasm_worker.kernels.case import cases_of, operations
from chiasm_worker.kernels.launch import ARCHITECTURES, INTERPRETER, configuration

QUICK = [(operation, c.name) for operation in operations() for c in cases_of(operation) if c.quick]


@pytest.mark.parametrize(("operation", "name"), QUICK)
def test_case(interpreted: Child, operation: str, name: str, seed: int) -> None:
    # As the interpreter is launched, or with the tiles of one of the GPUs.
    machine = (INTERPRETER, *ARCHITECTURES)[seed % 6]
    asked = {"operation": operation, "name": name, "seed": seed, "machine": machine}
    assert interpreted.ask("case", **asked)["faults"] == [], asked


def test_names_are_unique_and_each_operation_has_a_quick_case() -> None:
    for operation in operations():
        names = [case.name for case in cases_of(operation)]
        assert len(names) == len(set(names))
        assert operation in {quick for quick, _ in QUICK}
        for case in cases_of(operation):
            given = case.tolerance
            assert all(t.reason for t in (given if isinstance(given, tuple) else (given,)))


def test_a_case_is_launched_with_the_numbers_of_the_machine_that_it_is_asked_for(
    interpreted: Child,
) -> None:
    asked = {"operation": "paged_decode", "name": "bf16 grouped", "seed": 1}
    tiles = {
        machine: interpreted.ask("launches", **asked, machine=machine)["launches"][0]["constants"]
        for machine in ("interpreter", "sm_90", "gfx942")
    }
    found = {machine: constants["TILE"] for machine, constants in tiles.items()}
    assert found == {
        machine: configuration("paged_decode", "float16", machine)["TILE"] for machine in found
    }
    assert len(set(found.values())) == 3


@pytest.mark.parametrize("operation", operations())
def test_what_is_launched_compiles(
    interpreted: Child, compiled: Child, operation: str, seed: int
) -> None:
    """Types and constants as launches have them, not as builds say; one GPU each time."""
    machine = ARCHITECTURES[seed % len(ARCHITECTURES)]
    own = [case for case in cases_of(operation) if case.quick and not case.interpreter_only]
    asked = {"operation": operation, "name": own[0].name, "seed": seed, "machine": machine}
    noted = interpreted.ask("launches", **asked)["launches"]
    assert noted, "nothing was launched"
    for launch in noted:
        assert compiled.ask("launch", launch=launch, target=machine)["refusals"] == [], asked
