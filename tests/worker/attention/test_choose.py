"""Who computes attention, and the reason that is logged."""

from __future__ import annotations

import pytest
import torch
from chiasm_worker.attention import choose as module
from chiasm_worker.attention.choose import Choice, choose, make
from chiasm_worker.attention.reference import ReferenceAttention
from chiasm_worker.kernels.paged_prefill import shape

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that is not here."""
    for place in (module, shape):
        monkeypatch.setattr(place, "architecture", lambda device: "sm_90")


def test_a_cpu_keeps_torch() -> None:
    choice = choose(CPU, torch.bfloat16, 128, 4)
    assert choice == Choice("torch", "Triton has no code for CPUs")
    assert choice.numerics == ReferenceAttention.numerics
    kv = torch.zeros(2, 1, 2, 4, 1, 8)
    assert isinstance(make(choice, kv, None), ReferenceAttention)


def test_a_proved_gpu_takes_triton() -> None:
    choice = choose(GPU, torch.bfloat16, 128, 4)
    assert choice == Choice("triton", "its kernels are proved for sm_90")
    assert choice.numerics == "triton"


@pytest.mark.parametrize(
    ("dtype", "head_dim", "group", "why"),
    [
        (torch.float32, 128, 4, "in torch.float32"),
        (torch.float16, 512, 4, "heads have 512"),
        (torch.float16, 127, 4, "heads have 127"),
        (torch.float16, 128, 129, "129 heads share K and V"),
    ],
)
def test_what_kernels_do_not_take_is_torchs(
    dtype: torch.dtype, head_dim: int, group: int, why: str
) -> None:
    choice = choose(GPU, dtype, head_dim, group)
    assert choice.name == "torch"
    assert why in choice.reason


def test_a_gpu_that_nothing_was_proved_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(device: torch.device) -> str:
        raise ValueError("X is a sm_75; the kernels are proved for others.")

    monkeypatch.setattr(module, "architecture", unknown)
    choice = choose(GPU, torch.float16, 64, 4)
    assert choice == Choice("torch", "X is a sm_75; the kernels are proved for others.")


def test_triton_and_its_name_agree() -> None:
    from chiasm_worker.attention.triton_backend import TritonAttention

    assert Choice("triton", "").numerics == TritonAttention.numerics


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    choice = choose(GPU, torch.float16, 64, 4)
    assert choice == Choice("torch", "Triton is not installed")


def test_torch_is_taken_where_it_is_asked_for() -> None:
    choice = choose(GPU, torch.bfloat16, 128, 4, "torch")
    assert choice == Choice("torch", "the configuration asks for it")
    assert choice.numerics == ReferenceAttention.numerics


def test_triton_that_is_asked_for_computes_or_nothing_does() -> None:
    assert choose(GPU, torch.bfloat16, 128, 4, "triton").name == "triton"
    with pytest.raises(ValueError, match="is triton, but Triton has no code for CPUs; set it"):
        choose(CPU, torch.bfloat16, 128, 4, "triton")
    with pytest.raises(ValueError, match="but the kernels compute in bf16 and fp16, the model in"):
        choose(GPU, torch.float32, 128, 4, "triton")
