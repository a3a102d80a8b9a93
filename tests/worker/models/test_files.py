"""A model folder that is damaged is refused in a sentence, quantised or not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from chiasm_worker.kernels.quantised_linear.packed import Scheme
from chiasm_worker.models.files import read_tensors
from chiasm_worker.models.registry import load_model
from chiasm_worker.models.tiny.quantised import write_quantised
from safetensors.torch import load_file

MODEL = "qwen3-grouped"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture(params=["plain", "quantised"])
def folder(
    request: pytest.FixtureRequest, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> Path:
    """A model that may be damaged."""
    scheme = Scheme("pack-quantized", 4, 32, True)
    write_quantised(tiny_folder(MODEL), scheme, tmp_path / "quantised", tmp_path / "plain")
    return tmp_path / str(request.param)


def load(folder: Path) -> object:
    return load_model(folder, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize(
    "damage",
    [lambda whole: whole[:-10], lambda whole: b"xx" + whole[2:], lambda _: b"", lambda _: b"{}"],
)
def test_a_damaged_file_is_named(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    file = folder / SINGLE
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged or no safetensors file: "):
        load(folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / SINGLE).rename(folder / "1.safetensors")
    with pytest.raises(OSError, match=r"model\.safetensors is missing"):
        load(folder)
    tell(folder, {"weight": "1.safetensors", "bias": "2.safetensors"})
    with pytest.raises(OSError, match=r"2\.safetensors is missing"):
        load(folder)


def tell(folder: Path, where: object) -> None:
    """Write an index."""
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": where}))


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("{", "index.json is no JSON: "),
        ("[]", r"index.json holds \[\]; it must hold a JSON object"),
        ("{}", "has the metadata None; it must be a JSON object"),
        ('{"metadata": {}}', "has the weight_map None; it must be a JSON object"),
        ('{"metadata": {}, "weight_map": ["x"]}', r"has the weight_map \['x'\]"),
        ('{"metadata": {}, "weight_map": {}}', "names no file in weight_map"),
        (
            '{"metadata": {}, "weight_map": {"a": 1}}',
            "has the tensor 'a' in 1; it must be the name",
        ),
    ],
)
def test_a_damaged_index_is_told(folder: Path, index: str, said: str) -> None:
    (folder / SINGLE).unlink()
    (folder / INDEX).write_text(index)
    with pytest.raises(ValueError, match=said):
        load(folder)


@pytest.mark.parametrize("where", ["../elsewhere.safetensors", "a/../../x", "", "/", None])
def test_files_elsewhere_are_not_read(folder: Path, where: str | None) -> None:
    elsewhere = (folder / SINGLE).rename(folder.parent / "elsewhere.safetensors")
    where = str(elsewhere) if where is None else where
    tell(folder, dict.fromkeys(load_file(elsewhere), where))
    with pytest.raises(ValueError, match="it must be the name of a file in the same folder"):
        load(folder)


def test_files_may_be_links_to_elsewhere(folder: Path) -> None:
    """As in a download cache."""
    elsewhere = (folder / SINGLE).rename(folder.parent / "elsewhere.safetensors")
    (folder / "1.safetensors").symlink_to(elsewhere)
    tell(folder, dict.fromkeys(load_file(elsewhere), "1.safetensors"))
    assert read_tensors(folder).keys() == load_file(elsewhere).keys()
    load(folder)


@pytest.mark.parametrize("given", ["x", 1, [], [1], True])
def test_a_configuration_that_transformers_cannot_read(folder: Path, given: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": given}))
    with pytest.raises(ValueError, match="as quantization_config of its quantisation; it must be"):
        load(folder)


def test_a_configuration_that_is_no_object(folder: Path) -> None:
    for text in ("[]", "{", '"x"'):
        (folder / "config.json").write_text(text)
        with pytest.raises(ValueError, match=r"config\.json (holds|is no JSON)"):
            load(folder)
