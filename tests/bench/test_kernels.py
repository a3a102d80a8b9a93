"""What `bench/kernels.py` times on a GPU, at sizes for any machine: is it comparable at all?"""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from chiasm_worker.kernels.case import Draw, function_of, operations
from chiasm_worker.kernels.work import Plain, Work, work_of

# Roundings to bf16 on the way, which the reference has not: shares, products, both 2^-8.
TOLERANCE = {"atol": 2e-2, "rtol": 2e-2}
WORKS = [
    pytest.param(operation, work, id=f"{operation}-{work.name}")
    for operation in operations()
    for work in work_of(operation)
]


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    monkeypatch.syspath_prepend(str(request.config.rootpath / "bench"))
    return importlib.import_module("gpu.peers").PEERS


def drawn(work: Work, seed: int) -> dict[str, Any]:
    return work.small(Draw(seed, Plain(torch.device("cpu"))))


def test_every_operation_is_timed_beside_another_implementation(peers: Any) -> None:
    for operation in operations():
        assert work_of(operation)
        for work in work_of(operation):
            assert peers[work.function][0].package == "", "PyTorch is always there"
    timed = {work.function for operation in operations() for work in work_of(operation)}
    assert set(peers) == timed


@pytest.mark.parametrize(("operation", "work"), WORKS)
def test_peers_compute_what_the_reference_computes(operation: str, work: Work, peers: Any) -> None:
    seed = torch.seed() % 2**31
    reference = function_of(operation, work.function, reference=True)(**drawn(work, seed))
    expected = reference[0] if isinstance(reference, tuple) else reference
    asked = 0
    for peer in peers[work.function]:
        if not peer.is_here or peer.package:
            continue
        launch = peer.prepare(drawn(work, seed))
        assert launch is not None, f"{peer.name} does not take it"
        asked += 1
        message = f"{peer.name}, seed {seed}"
        torch.testing.assert_close(
            launch(), expected, msg=lambda why, said=message: f"{said}: {why}", **TOLERANCE
        )
    assert asked


@pytest.mark.parametrize(("operation", "work"), WORKS)
def test_what_must_move_is_at_least_the_result(operation: str, work: Work) -> None:
    inputs = drawn(work, 1)
    result = function_of(operation, work.function, reference=True)(**inputs)
    outputs = result if isinstance(result, tuple) else (result,)
    amount = work.amount(drawn(work, 1), outputs)
    assert amount > 0
    if work.ceiling == "copy" and operation != "row_copy":
        assert amount > outputs[0].numel() * outputs[0].itemsize
    assert 0 < work.goal < 1


def test_bytes_of_a_norm_are_two_rows_in_and_two_out() -> None:
    work = next(work for work in work_of("norm") if "residual" in work.name)
    inputs = drawn(work, 1)
    outputs = function_of("norm", work.function, reference=True)(**inputs)
    assert work.amount(inputs, outputs) == 4 * 5 * 96 * 2


def test_operations_of_a_causal_prompt_are_those_of_the_pairs_seen() -> None:
    work = next(work for work in work_of("paged_prefill") if work.name == "8192, causal")
    # 60 tokens, 4 heads of 32.
    assert work.amount(drawn(work, 1), ()) == 4 * 4 * 32 * 60 * 61 // 2


def test_prompts_that_are_compared_are_prompts_that_are_timed(request: Any, peers: Any) -> None:
    source = (request.config.rootpath / "bench" / "kernels.py").read_text()
    for work in work_of("paged_prefill"):
        if work.name.startswith("8192") and "e4m3" not in work.name:
            assert f'"{work.name}"' in source
