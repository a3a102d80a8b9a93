from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from chiasm_worker.models.registry import FAMILIES, find_family, load_model
from chiasm_worker.models.text import rope_scaling, rotary, sliding_windows
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, MistralConfig

CPU = torch.device("cpu")


def test_an_unknown_architecture_is_refused_with_the_families():
    with pytest.raises(ValueError, match="'GPT5ForEverything' is not one") as error:
        find_family("GPT5ForEverything")
    for family in FAMILIES:
        assert family.name in str(error.value)


def test_a_folder_of_another_architecture_is_refused_before_its_weights_are_read(tmp_path: Path):
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
              "num_attention_heads": 4}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="'LlamaForCausalLM' is not one that this engine computes"):
        load_model(tmp_path, torch.float32, CPU)


def test_an_empty_folder_is_no_model(tmp_path: Path):
    with pytest.raises(ValueError, match=r"holds no config.json"):
        load_model(tmp_path / "missing", torch.float32, CPU)


def test_text_models_beyond_ours_are_refused(tiny_folder: Callable[[str], Path], tmp_path: Path):
    folder = tiny_folder("llava-clip-llama")
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["model_type"] = "gemma"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="Text model 'gemma' is not supported; supported are"):
        load_model(tmp_path, torch.float32, CPU)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("qwen3-grouped", "model.language_model.layers.1.mlp.down_proj.weight"),
        ("qwen3-grouped", "model.visual.merger.norm.bias"),
        ("qwen3-grouped", "lm_head.weight"),
        ("llava-clip-llama", "encoder.layers.0.mlp.fc1.weight"),
    ],
)
@pytest.mark.parametrize("change", ["lacks", "too many", "another shape"])
def test_a_checkpoint_holds_exactly_the_models_tensors(
    name: str, tensor: str, change: str, tiny_folder: Callable[[str], Path], tmp_path: Path
):
    """The fault: what is missing is made of random numbers, what is left over is dropped."""
    folder = shutil.copytree(tiny_folder(name), tmp_path / "copy")
    tensors = load_file(folder / "model.safetensors")
    # Families that have been renamed are still saved under their old names.
    (tensor,) = [saved for saved in tensors if saved.endswith(tensor)]
    if change == "lacks":
        del tensors[tensor]
    elif change == "too many":
        tensor += "_scale"
        tensors[tensor] = torch.ones(3)
    else:
        tensors[tensor] = tensors[tensor][1:].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    last = re.escape(tensor.rsplit(".", 3)[-1])
    with pytest.raises(ValueError, match=rf"{change}.* '.*{last}' \(the first of 1\)"):
        load_model(folder, torch.float32, CPU)


def test_a_tied_head_need_not_be_in_the_checkpoint(
    tiny_folder: Callable[[str], Path], tmp_path: Path
):
    folder = shutil.copytree(tiny_folder("qwen2-grouped"), tmp_path / "copy")
    config = json.loads((folder / "config.json").read_text())
    config["tie_word_embeddings"] = config["text_config"]["tie_word_embeddings"] = True
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    tensors.pop("lm_head.weight", None)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    load_model(folder, torch.float32, CPU)


def test_scalings_that_depend_on_length_are_refused():
    config = LlamaConfig(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0})
    with pytest.raises(ValueError, match="scaling 'dynamic' is not supported"):
        rotary(config, torch.float32, CPU)


def test_scaling_is_named_with_all_that_changes_it():
    rope = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    assert rope_scaling(LlamaConfig(rope_parameters=rope)) == "linear(factor=2.0)"
    assert rope_scaling(LlamaConfig()) == "unscaled"


def test_windows_per_layer():
    assert sliding_windows(MistralConfig(num_hidden_layers=2, sliding_window=9)) == (9, 9)
    assert sliding_windows(LlamaConfig(num_hidden_layers=2)) == (0, 0)
