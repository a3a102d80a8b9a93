"""Kernels compiled ahead of time; BENCH=kernel_gates compiles all builds for all targets."""

from __future__ import annotations

import pytest
import torch
from chiasm_proofs.child import Child, ProofError
from chiasm_worker.kernels import launch
from chiasm_worker.kernels.case import builds_of, operations
from chiasm_worker.kernels.launch import ARCHITECTURES, architecture, configuration, table

QUICK = [
    (operation, build.name, target)
    for operation in operations()
    for build in builds_of(operation)
    if build.quick
    for target in (build.targets or ("sm_80", "sm_90", "gfx942"))
]


@pytest.mark.parametrize(("operation", "name", "target"), QUICK)
def test_build(compiled: Child, operation: str, name: str, target: str) -> None:
    row = compiled.ask("build", operation=operation, name=name, target=target)
    assert row["failures"] == [], row


def test_few_and_many_rows_are_multiplied_in_the_same_steps(compiled: Child) -> None:
    # Instructions of another depth would add the products of a row in another order.
    few, many = (
        compiled.ask("build", operation="quantised_linear", name=name, target="gfx942")
        for name in ("int4", "int4, many rows")
    )
    assert set(few["matrix_ops"]) == set(many["matrix_ops"]) == {"v_mfma_f32_16x16x16_bf16"}


def test_a_build_that_lacks_an_argument_is_refused(compiled: Child) -> None:
    with pytest.raises(ProofError, match="says nothing of \\['eps'\\]"):
        compiled.ask("incomplete_build")


def test_names_are_unique_and_each_operation_has_a_quick_build() -> None:
    for operation in operations():
        names = [build.name for build in builds_of(operation)]
        assert len(names) == len(set(names))
        assert operation in {quick for quick, _, _ in QUICK}


def test_every_row_of_the_launch_table_is_built() -> None:
    built = {build.launch for operation in operations() for build in builds_of(operation)}
    rows = {
        (operation, variant)
        for operation, variants in table().items()
        for variant, row in variants.items()
        if not row.get("interpreter_only")
    }
    assert built == rows
    for row in rows:
        for machine in ARCHITECTURES:
            assert {"num_warps", "num_stages"} <= set(configuration(*row, machine))


def test_what_the_table_does_not_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="has no variant"):
        configuration("norm", "w1", "sm_90")
    with pytest.raises(ValueError, match="is no architecture"):
        configuration("norm", "w2048", "sm_75")
    with pytest.raises(ValueError, match="for tests on the interpreter"):
        configuration("paged_decode", "float32", "sm_90")


def test_proofs_launch_as_a_gpu_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault: a variant's base overrode it again, and a proof had tiles that no GPU has."""
    rows = [(operation, variant) for operation, rows in table().items() for variant in rows]
    own = [row for row in rows if not table()[row[0]][row[1]].get("interpreter_only")]
    for machine in ARCHITECTURES:
        wanted = {row: configuration(*row, machine) for row in own}
        with monkeypatch.context() as patched:
            patched.setattr(launch, "ON_CPU", machine)
            architecture.cache_clear()
            configuration.cache_clear()
            found = {row: configuration(*row, architecture(torch.device("cpu"))) for row in own}
        architecture.cache_clear()
        configuration.cache_clear()
        assert found == wanted


def test_a_row_has_the_numbers_of_the_row_it_is_like() -> None:
    first = configuration("paged_decode", "float16", "sm_90")
    assert configuration("paged_decode", "float16_many", "sm_90") == {**first, "num_warps": 8}
    assert configuration("paged_decode", "e4m3", "sm_90")["NATIVE"] == 1
    assert configuration("paged_decode", "e4m3", "sm_80")["NATIVE"] == 0
    # Splits are small on the interpreter, whatever a row says of GPUs.
    assert configuration("paged_decode", "e4m3", "interpreter")["MIN_CHUNK"] == 32
