"""Kernels against their references on the interpreter; BENCH=kernel_equality runs all cases."""

from __future__ import annotations

import pytest
from chiasm_proofs.child import Child
from chiasm_worker.kernels.case import cases_of, operations

QUICK = [(operation, c.name) for operation in operations() for c in cases_of(operation) if c.quick]


@pytest.mark.parametrize(("operation", "name"), QUICK)
def test_case(interpreted: Child, operation: str, name: str, seed: int) -> None:
    answer = interpreted.ask("case", operation=operation, name=name, seed=seed)
    assert answer["faults"] == [], f"seed {seed}"


def test_names_are_unique_and_each_operation_has_a_quick_case() -> None:
    for operation in operations():
        names = [case.name for case in cases_of(operation)]
        assert len(names) == len(set(names))
        assert operation in {quick for quick, _ in QUICK}
        for case in cases_of(operation):
            given = case.tolerance
            assert all(t.reason for t in (given if isinstance(given, tuple) else (given,)))
