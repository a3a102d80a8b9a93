"""One choice computes a whole model: its decoder's operations and its attention, never a mix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from chiasm_contract.config import EngineLimits
from chiasm_worker.attention.choose import Choice
from chiasm_worker.attention.reference import ReferenceAttention
from chiasm_worker.attention.triton_backend import TritonAttention
from chiasm_worker.engine.engine import cache_spec
from chiasm_worker.engine.epoch import check_exchangeable
from chiasm_worker.equality import Prepared
from chiasm_worker.layers import triton_operations
from chiasm_worker.layers.operations import TorchOperations
from chiasm_worker.models import registry
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.models.registry import load_model
from chiasm_worker.models.tiny import TINY_MODELS

CPU = torch.device("cpu")
TRITON = Choice("triton", "a test says so")
ONE_PER_FAMILY = [*{tiny.family: tiny.name for tiny in TINY_MODELS}.values()]
Folders = Callable[[str], Path]


def load(folder: Path, choice: Choice | None = None) -> LoadedModel:
    return load_model(folder, torch.float32, CPU, choice)


@pytest.mark.parametrize("name", ONE_PER_FAMILY)
def test_nothing_of_a_family_is_left_to_torch(
    name: str, tiny_folder: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: a family makes a norm by itself, or asks another implementation for it."""

    def asked(*_: object, **__: object) -> Any:
        raise AssertionError("torch was asked for an operation of a decoder that is Triton's")

    monkeypatch.setattr(TorchOperations, "norm", asked)
    monkeypatch.setattr(TorchOperations, "gated", asked)
    model = load(tiny_folder(name), TRITON)
    assert model.choice == TRITON
    assert isinstance(Prepared(model).engine().runner.attention, TritonAttention)


def test_what_decides_is_the_device_the_type_and_the_heads(
    tiny_folder: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []

    def choose(*arguments: object) -> Choice:
        given.extend(arguments)
        return TRITON

    folder = tiny_folder("qwen3-grouped")
    plain = load(folder)
    assert plain.choice == Choice("torch", "Triton has no code for CPUs")
    assert isinstance(Prepared(plain).engine().runner.attention, ReferenceAttention)
    monkeypatch.setattr(registry, "choose", choose)
    assert load(folder).choice == TRITON
    spec = plain.decoder.spec
    group = spec.num_heads // spec.num_kv_heads
    assert given == [CPU, torch.float32, spec.head_dim, group, "auto"]


def test_exceptions_are_said_with_the_choice(
    tiny_folder: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_operations, "MAX_SIZE", 32)
    model = load(tiny_folder("qwen3-grouped"), TRITON)
    assert str(model.choice) == (
        "triton: a test says so; norms of 64 numbers are torch's: the kernel takes up to 32"
    )


def test_weights_that_another_implementation_computes_are_not_swapped_in(
    tiny_folder: Folders,
) -> None:
    """The fault: layers of the one, and attention of the other, over a cache of both."""
    model = load(tiny_folder("qwen3-grouped"))
    spec = cache_spec(model, EngineLimits())
    check_exchangeable(model, model, spec, spec)
    with pytest.raises(ValueError, match="implementation was torch and would become triton"):
        check_exchangeable(model, replace(model, choice=TRITON), spec, spec)
