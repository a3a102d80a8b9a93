"""Any change of what is computed changes the field that says so, and only that."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from chiasm_contract import fingerprint
from chiasm_contract.config import EngineLimits
from chiasm_contract.fingerprint import Identity
from chiasm_worker.attention.reference import ReferenceAttention
from chiasm_worker.engine.engine import cache_spec
from chiasm_worker.equality import Prepared
from chiasm_worker.identity import build_identity, cache_root, resize_backend
from chiasm_worker.kernels.launch import machine
from chiasm_worker.models.registry import load_model
from chiasm_worker.models.tiny import TINY_MODELS
from safetensors.torch import load_file, save_file

CPU = torch.device("cpu")


def identity(
    folder: Path, dtype: torch.dtype = torch.float32, limits: EngineLimits | None = None
) -> Identity:
    model = load_model(folder, dtype, CPU)
    return build_identity(
        model, cache_spec(model, limits or EngineLimits()), ReferenceAttention.numerics
    )


@pytest.fixture
def folder(tiny_folder: Callable[[str], Path], tmp_path: Path) -> Path:
    return copied(tiny_folder("qwen3-grouped"), tmp_path)


def copied(source: Path, target: Path) -> Path:
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


def edit_config(folder: Path, section: str | None, field: str, value: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (config if section is None else config[section])[field] = value
    (folder / "config.json").write_text(json.dumps(config))


def changed(before: Identity, after: Identity) -> set[str]:
    a, b = before.fields(), after.fields()
    assert a.keys() == b.keys()
    return {name for name in a if a[name] != b[name]}


@pytest.mark.parametrize("name", [tiny.name for tiny in TINY_MODELS])
def test_every_family_has_a_complete_identity(
    name: str, tiny_folder: Callable[[str], Path], prepared: Callable[[str], Prepared]
):
    manifest = identity(tiny_folder(name))
    assert len(fingerprint.compute_fp(manifest.compute)) == 64
    # Layers that keep K and V of each token.
    num_layers = prepared(name).model.decoder.spec.num_kv_layers
    assert manifest.fields()["repr.num_layers"] == num_layers


def test_loading_again_is_the_same_identity(folder: Path):
    assert changed(identity(folder), identity(folder)) == set()


@pytest.mark.parametrize(
    ("tensor", "field"),
    [
        ("model.language_model.layers.1.mlp.down_proj.weight", "compute.weights.language"),
        ("model.language_model.embed_tokens.weight", "compute.weights.language"),
        ("lm_head.weight", "compute.weights.language"),
        ("model.visual.blocks.0.attn.qkv.weight", "compute.weights.vision_encoder"),
        ("model.visual.pos_embed.weight", "compute.weights.vision_encoder"),
        ("model.visual.merger.linear_fc1.weight", "compute.weights.projector"),
        ("model.visual.deepstack_merger_list.0.norm.weight", "compute.weights.projector"),
    ],
)
def test_one_changed_number_names_its_part(tensor: str, field: str, folder: Path):
    before = identity(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors[tensor].view(-1)[0] += 1e-3
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert changed(before, identity(folder)) == {field}


@pytest.mark.parametrize("part", ["image_processor", "video_processor"])
def test_the_processor_counts(part: str, folder: Path):
    before = identity(folder)
    path = folder / "processor_config.json"
    config = json.loads(path.read_text())
    config[part]["image_mean"] = [0.4, 0.4, 0.4]
    path.write_text(json.dumps(config))
    assert changed(before, identity(folder)) == {"compute.processor.config"}


def test_the_processors_own_settings_count(tiny_folder: Callable[[str], Path], tmp_path: Path):
    folder = shutil.copytree(tiny_folder("mistral3"), tmp_path / "copy")
    before = identity(folder)
    path = folder / "processor_config.json"
    config = json.loads(path.read_text())
    config["spatial_merge_size"] = 1
    path.write_text(json.dumps(config))
    assert changed(before, identity(folder)) == {"compute.processor.config"}


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("qwen3-grouped", "do_normalize", False),
        ("qwen3-grouped", "do_resize", False),
        ("gemma3-tied", "do_pan_and_scan", True),
        ("qwen2-audio", "return_attention_mask", False),
    ],
)
def test_options_that_stand_with_the_tokenizer_count(
    name: str,
    option: str,
    value: object,
    tiny_folder: Callable[[str], Path],
    tmp_path: Path,
):
    """The fault: an entry of tokenizer_config.json changes pixels, and the identity stays."""
    folder = shutil.copytree(tiny_folder(name), tmp_path / "copy")
    before = identity(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), option: value}))
    assert changed(before, identity(folder)) == {"compute.processor.config"}


def test_the_library_of_every_part_that_resizes_counts(prepared: Callable[[str], Prepared]):
    """The fault: one library stands for all parts, or for one that there is not."""

    class WithPillow:
        pass

    processor = prepared("qwen3-grouped").model.processor
    torchvision = f"torchvision {version('torchvision').split('+')[0]}"
    pillow = f"pillow {version('pillow')}"
    assert resize_backend(processor) == f"image {torchvision}, video {torchvision}"
    fields = {"image_processor": WithPillow(), "video_processor": processor.video_processor}
    assert resize_backend(SimpleNamespace(**fields)) == f"image {pillow}, video {torchvision}"
    fields = {"image_processor": processor.image_processor, "video_processor": WithPillow()}
    assert resize_backend(SimpleNamespace(**fields)) == f"image {torchvision}, video {pillow}"
    del fields["image_processor"]
    assert resize_backend(SimpleNamespace(**fields)) == f"video {pillow}"
    sounds = prepared("qwen2-audio").model.processor
    assert resize_backend(sounds) == "nothing is resized"


def test_the_template_counts(folder: Path):
    before = identity(folder)
    path = folder / "chat_template.jinja"
    path.write_text(path.read_text() + " ")
    assert changed(before, identity(folder)) == {"compute.processor.config"}


def test_positions_count(folder: Path):
    before = identity(folder)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["rope_parameters"]["rope_theta"] = 500.0
    (folder / "config.json").write_text(json.dumps(config))
    assert changed(before, identity(folder)) == {"compute.position.theta", "compute.model.config"}


@pytest.mark.parametrize(
    ("name", "section", "field", "value"),
    [
        ("qwen3-grouped", "text_config", "rms_norm_eps", 1e-5),
        ("qwen3-grouped", "vision_config", "hidden_act", "gelu"),
        ("qwen3-grouped", None, "video_token_id", 1),
        ("llava-clip-llama", None, "vision_feature_layer", -1),
        ("llava-clip-llama", None, "vision_feature_select_strategy", "full"),
    ],
)
def test_what_no_tensor_says_counts(
    name: str,
    section: str | None,
    field: str,
    value: object,
    tiny_folder: Callable[[str], Path],
    tmp_path: Path,
):
    folder = copied(tiny_folder(name), tmp_path)
    before = identity(folder)
    edit_config(folder, section, field, value)
    assert changed(before, identity(folder)) == {"compute.model.config"}


@pytest.mark.parametrize(
    ("section", "field", "value"),
    [
        (None, "_name_or_path", "somebody/else"),
        (None, "transformers_version", "4.0.0"),
        ("text_config", "dtype", "float16"),
        ("text_config", "eos_token_id", 7),
        ("text_config", "use_cache", False),
    ],
)
def test_names_versions_and_how_to_generate_do_not_count(
    section: str | None, field: str, value: object, folder: Path
):
    before = identity(folder)
    edit_config(folder, section, field, value)
    assert changed(before, identity(folder)) == set()


def test_who_computes_counts(prepared: Callable[[str], Prepared], monkeypatch: pytest.MonkeyPatch):
    """The fault: vectors of a GPU, of another library or of our own older arithmetic are taken."""
    model = prepared("qwen3-grouped").model
    spec = cache_spec(model, EngineLimits())
    gpus = [SimpleNamespace(major=9, minor=0), SimpleNamespace(major=9, minor=0),
            SimpleNamespace(major=8, minor=9)]  # fmt: skip
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpus[device.index])
    machine.cache_clear()

    def now(device: torch.device = CPU) -> Identity:
        return build_identity(replace(model, device=device), spec, ReferenceAttention.numerics)

    before, field = now(), {"compute.attention_numerics"}
    assert changed(before, now(torch.device("cuda:0"))) == field
    # Which of several equal devices is no difference; another generation's is.
    assert changed(now(torch.device("cuda:1")), now(torch.device("cuda:0"))) == set()
    assert changed(now(torch.device("cuda:2")), now(torch.device("cuda:0"))) == field
    machine.cache_clear()
    monkeypatch.setattr("chiasm_worker.identity.NUMERICS_VERSION", 0)
    assert changed(before, now()) == field
    monkeypatch.undo()
    major, minor, *_ = torch.__version__.split(".")
    for release, counts in ((f"{major}.{minor}.99+cu1", False), (f"{major}.{minor}1.0", True)):
        monkeypatch.setattr(torch, "__version__", release)
        assert changed(before, now()) == (field if counts else set())


def test_precision_counts_in_numbers_and_bytes(folder: Path):
    fields = changed(identity(folder), identity(folder, torch.bfloat16))
    weights = {f"compute.weights.{part}" for part in ("language", "vision_encoder", "projector")}
    kinds = {"compute.compute_dtype", "repr.kv_dtype.text", "repr.kv_dtype.vision"}
    assert fields == weights | kinds


def test_the_block_size_is_a_matter_of_bytes(folder: Path):
    before, after = identity(folder), identity(folder, limits=EngineLimits(block_size=8))
    assert changed(before, after) == {"repr.block_size"}
    assert cache_root(before) != cache_root(after)
