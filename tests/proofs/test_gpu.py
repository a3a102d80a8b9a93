"""The kernels on a GPU: `make test-gpu`. All cases; what needs the interpreter is left out."""

from __future__ import annotations

import pytest
import torch
from chiasm_proofs.interpreter import layer_checks
from chiasm_proofs.interpreter.equality import Trial
from chiasm_worker.kernels.case import Case, cases_of, function_of, operations
from chiasm_worker.kernels.launch import architecture

pytestmark = pytest.mark.gpu
ALL = [
    pytest.param(operation, case, id=f"{operation}-{case.name}")
    for operation in operations()
    for case in cases_of(operation)
    if not case.interpreter_only
]


@pytest.fixture(autouse=True, scope="session")
def gpu() -> None:
    """Or nothing here says anything of the kernels."""
    if not torch.cuda.is_available():
        pytest.exit("these tests need a GPU that torch can use, and it finds none", returncode=2)


def test_the_gpu_is_one_that_the_kernels_are_proved_for() -> None:
    assert architecture(torch.device("cuda", 0)).startswith(("sm_", "gfx"))


def test_operations_are_torchs(seed: int) -> None:
    assert layer_checks.faults(seed, torch.device("cuda", 0)) == [], f"seed {seed}"


@pytest.mark.parametrize(("operation", "case"), ALL)
def test_case(operation: str, case: Case, seed: int) -> None:
    kernel = function_of(operation, case.function, reference=False)
    reference = function_of(operation, case.function, reference=True)
    trial = Trial(case, kernel, reference, seed, torch.device("cuda", 0), None)
    assert trial.judge().faults == (), f"seed {seed}"
