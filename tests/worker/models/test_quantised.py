"""Quantised checkpoints: what is loaded is what the codes stand for, all else is refused by name."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from chiasm_worker.checkup.stored import Pace, compare_stored
from chiasm_worker.engine.engine import attention_choice, cache_spec
from chiasm_worker.equality import Prepared, ask
from chiasm_worker.identity import build_identity
from chiasm_worker.kernels.quantised_linear.packed import Scheme
from chiasm_worker.layers.linear import Linear, QuantisedLinear, fuse
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.models.quantised import quantisation_of
from chiasm_worker.models.registry import load_model
from chiasm_worker.models.tiny.quantised import described, quantise, write_quantised
from chiasm_contract.config import EngineLimits
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from safetensors.torch import load_file, save_file

CPU = torch.device("cpu")
INT4 = Scheme("pack-quantized", 4, 32, False)
SCHEMES = {
    "qwen3-grouped": INT4,
    "gemma3-narrow-window": Scheme("pack-quantized", 4, 0, True),
    "mllama-grouped": Scheme("int-quantized", 8, 64, True),
    "llava-clip-qwen3": Scheme("pack-quantized", 8, 0, False),
    "qwen2.5-grouped": Scheme("int-quantized", 8, 0, False),
}


@pytest.fixture
def twins(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> Callable[[str, Scheme], tuple[Path, Path]]:
    """(tiny model, scheme) -> its quantised checkpoint, and the plain one of the same weights."""

    def write(name: str, scheme: Scheme) -> tuple[Path, Path]:
        quantised, plain = tmp_path / "quantised", tmp_path / "plain"
        write_quantised(tiny_folder(name), scheme, quantised, plain)
        return quantised, plain

    return write


def answers(model: LoadedModel) -> list[list[int]]:
    prepared = Prepared(model)
    asked = [ask("Name two colours."), ask("Which one is red, and which is not?")]
    return prepared.generate(prepared.engine(), asked, 8, 1)


@pytest.mark.parametrize("name", SCHEMES)
def test_same_tokens_as_the_plain_checkpoint(
    name: str, twins: Callable[[str, Scheme], tuple[Path, Path]]
) -> None:
    quantised, plain = (load_model(f, torch.float32, CPU) for f in twins(name, SCHEMES[name]))
    assert answers(quantised) == answers(plain)
    assert quantised.eos_token_ids == plain.eos_token_ids
    assert quantised.num_bytes == plain.num_bytes
