"""What is loaded of quantised checkpoints is what their codes stand for; all else is refused."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from chiasm_contract.config import EngineLimits
from chiasm_worker.attention.choose import Choice
from chiasm_worker.checkup.stored import Pace, compare_stored
from chiasm_worker.engine.engine import cache_spec
from chiasm_worker.equality import Prepared, ask
from chiasm_worker.identity import build_identity
from chiasm_worker.kernels.quantised_linear.packed import Scheme, dequantise, repack
from chiasm_worker.layers.linear import Linear, QuantisedLinear, fuse
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.models.quantisation import quantisation_of
from chiasm_worker.models.registry import load_model
from chiasm_worker.models.tiny.quantised import described, quantise, write_quantised
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


def test_identity_and_files(twins: Callable[[str, Scheme], tuple[Path, Path]]) -> None:
    """The fault: vectors of a quantised model among those of the model that it was made from."""
    folders = twins("qwen3-grouped", INT4)
    quantised, plain = (load_model(folder, torch.bfloat16, CPU) for folder in folders)
    identities = [
        build_identity(each, cache_spec(each, EngineLimits()), each.choice.numerics)
        for each in (quantised, plain)
    ]
    ours, others = (identity.compute for identity in identities)
    assert ours.weight_quantization == "pack-quantized int4 group 32 asymmetric dequantised"
    assert others.weight_quantization == "unquantized"
    assert ours.weights.language != others.weights.language
    assert ours.weights.vision_encoder == others.weights.vision_encoder
    assert ours.model.config != others.model.config
    # The background check looks for the file's own tensors.
    pace = Pace(60, lambda: 0.0, lambda _: None)
    stored = compare_stored(quantised, identities[0].fields(), pace)
    assert (stored.fault, stored.differing) == (None, ())


def test_what_is_computed_is_said(
    twins: Callable[[str, Scheme], tuple[Path, Path]], caplog: pytest.LogCaptureFixture
) -> None:
    quantised, _ = twins("qwen3-grouped", INT4)
    with caplog.at_level(logging.INFO):
        load_model(quantised, torch.bfloat16, CPU)
    assert "pack-quantized int4 group 32 asymmetric dequantised" in caplog.text


def test_kernels_of_ours_compute_with_weights_as_they_are(
    twins: Callable[[str, Scheme], tuple[Path, Path]],
) -> None:
    quantised, plain = twins("qwen3-grouped", INT4)
    ours = load_model(quantised, torch.bfloat16, CPU, Choice("triton", "it is asked for"))
    assert ours.weight_quantization == "pack-quantized int4 group 32 asymmetric packed"
    theirs = load_model(quantised, torch.bfloat16, CPU)
    assert ours.digests == theirs.digests
    # Inputs are filled up to 128, of which these have 64.
    assert ours.num_bytes < 0.9 * load_model(plain, torch.bfloat16, CPU).num_bytes


def test_several_files(twins: Callable[[str, Scheme], tuple[Path, Path]]) -> None:
    quantised, plain = twins("qwen3-grouped", INT4)
    tensors = load_file(quantised / "model.safetensors")
    (quantised / "model.safetensors").unlink()
    halves = sorted(tensors)[::2], sorted(tensors)[1::2]
    for i, names in enumerate(halves):
        save_file({name: tensors[name] for name in names}, quantised / f"part-{i}.safetensors")
    where = {name: f"part-{i}.safetensors" for i, names in enumerate(halves) for name in names}
    index = {"metadata": {}, "weight_map": where}
    (quantised / "model.safetensors.index.json").write_text(json.dumps(index))
    loaded = load_model(quantised, torch.float32, CPU)
    assert answers(loaded) == answers(load_model(plain, torch.float32, CPU))


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        (("quant_method",), "gptq", "quantised with quant_method 'gptq'; this engine takes"),
        (("quantization_status",), "frozen", "quantization_status 'frozen'"),
        (("kv_cache_scheme",), {"num_bits": 8}, "kv_cache_scheme"),
        (("sparsity_config",), {"format": "sparse-24"}, "sparsity_config.format 'sparse-24'"),
        (("transform_config",), {"config_groups": {"a": 1}}, "transform_config"),
        (("format",), "float-quantized", "in the form 'float-quantized' cannot be read"),
        (("config_groups",), {}, "the number of config_groups 0; this engine takes 1"),
        (("group", "input_activations"), {"num_bits": 8}, "input_activations"),
        (("group", "format"), "nvfp4-pack-quantized", "in the form 'nvfp4-pack-quantized'"),
        (("weights", "type"), "float", "weights.type 'float'"),
        (("weights", "actorder"), "group", "weights.actorder 'group'; this engine takes none"),
        (("weights", "strategy"), "tensor", "weights.strategy 'tensor'"),
        (("weights", "group_size"), 16, "weights.group_size 16; this engine takes 32 or 64"),
        (("weights", "num_bits"), 3, "weights.num_bits 3; this engine takes 4 or 8"),
        (("weights", "dynamic"), True, "weights.dynamic True"),
        (("weights", "symmetric"), "true", "weights.symmetric 'true'; this engine takes True or"),
        (("weights", "symmetric"), 1, "weights.symmetric 1"),
        (("weights", "symmetric"), None, "weights.symmetric None"),
        (("weights", "num_bits"), None, "weights.num_bits None"),
        (("weights", "num_bits"), "four", "weights.num_bits 'four'"),
        (("weights", "num_bits"), [4], r"weights.num_bits \[4\]"),
        (("weights", "group_size"), None, "weights.group_size None"),
        (("weights", "group_size"), "32", "weights.group_size '32'"),
        (("weights", "group_size"), 0, "weights.group_size 0"),
        (("weights", "group_size"), {}, "weights.group_size {}"),
        (("weights", "strategy"), None, "weights.strategy None"),
        (("group", "weights"), "x", "has 'x' as weights of its quantisation; it must be a JSON"),
        (("group", "weights"), None, "has None as weights of its quantisation"),
        (("config_groups",), {"group_0": None}, "has None as config_groups.group_0 of its"),
        (("config_groups",), {"W8A16": ["Linear"]}, r"has \['Linear'\] as config_groups.W8A16"),
        (("config_groups",), [1], r"has \[1\] as config_groups"),
        (("config_groups",), "x", "has 'x' as config_groups"),
        (("sparsity_config",), "x", "has 'x' as sparsity_config"),
        (("quant_method",), ["x"], r"quant_method \['x'\]"),
        (("ignore",), [1], r"has \[1\] as quantization_config.ignore; it must be a list"),
        (("ignore",), "lm_head", "has 'lm_head' as quantization_config.ignore; it must be a list"),
        (("ignore",), ["re:.*("], r"ignores the layers 're:\.\*\(', which is no pattern"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(
    where: tuple[str, ...], value: Any, said: str
) -> None:
    told = described(INT4)
    (group,) = told["config_groups"].values()
    inner = {"group": group, "weights": group["weights"]}
    (inner[where[0]] if len(where) > 1 else told)[where[-1]] = value

    class Config:
        quantization_config = told

    with pytest.raises(ValueError, match=said):
        quantisation_of(Config())


TOWER = "model.visual.blocks.0.attn.proj"
PROJECTION = "model.language_model.layers.1.mlp.down_proj"


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ("lm_head", "'lm_head' is quantised, and config.json ignores it"),
        (TOWER, "blocks.0.attn.proj' is quantised, and config.json ignores it"),
        ("model.language_model.embed_tokens", "only the projections of the language model's"),
        ("elsewhere.layers.1.mlp.up_proj", "only the projections of the language model's"),
    ],
)
def test_other_layers_are_refused(
    layer: str, said: str, twins: Callable[[str, Scheme], tuple[Path, Path]]
) -> None:
    quantised, _ = twins("qwen3-grouped", INT4)
    tensors = load_file(quantised / "model.safetensors")
    weight = tensors.pop(f"{layer}.weight", torch.ones(64, 64))
    parts, _ = quantise(weight, INT4)
    tensors |= {f"{layer}.{part}": tensor for part, tensor in parts.items()}
    save_file(tensors, quantised / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=said):
        load_model(quantised, torch.float32, CPU)


INT8 = Scheme("int-quantized", 8, 32, False)


@pytest.mark.parametrize(
    ("scheme", "part"),
    [(scheme, part) for scheme in (INT4, INT8) for part in quantise(torch.ones(32, 32), scheme)[0]],
)
def test_what_a_layer_lacks_is_named(
    scheme: Scheme, part: str, twins: Callable[[str, Scheme], tuple[Path, Path]]
) -> None:
    """The fault: codes without their scales, taken for weights."""
    quantised, _ = twins("qwen3-grouped", scheme)
    tensors = load_file(quantised / "model.safetensors")
    del tensors[f"{PROJECTION}.{part}"]
    save_file(tensors, quantised / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=f"{PROJECTION} lacks {part}"):
        load_model(quantised, torch.float32, CPU)


@pytest.mark.parametrize("scheme", [INT4, INT8])
def test_codes_alone_are_no_weight(
    scheme: Scheme, twins: Callable[[str, Scheme], tuple[Path, Path]]
) -> None:
    quantised, _ = twins("qwen3-grouped", scheme)
    tensors = load_file(quantised / "model.safetensors")
    mine = [name for name in tensors if name.startswith(PROJECTION)]
    tensors = {name: tensor for name, tensor in tensors.items() if name not in mine}
    tensors[f"{PROJECTION}.weight"] = torch.ones((64, 128), dtype=torch.int8)
    save_file(tensors, quantised / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=f"{PROJECTION} lacks weight_"):
        load_model(quantised, torch.float32, CPU)


def test_a_layer_that_was_ignored_stays_as_it_is(
    twins: Callable[[str, Scheme], tuple[Path, Path]],
) -> None:
    quantised, plain = twins("qwen3-grouped", INT4)
    tensors = load_file(quantised / "model.safetensors")
    mine = [name for name in tensors if name.startswith(PROJECTION)]
    tensors = {name: tensor for name, tensor in tensors.items() if name not in mine}
    name = f"{PROJECTION}.weight"
    tensors[name] = load_file(plain / "model.safetensors")[name]
    save_file(tensors, quantised / "model.safetensors", metadata={"format": "pt"})
    loaded = load_model(quantised, torch.float32, CPU)
    assert answers(loaded) == answers(load_model(plain, torch.float32, CPU))


def test_the_tiny_checkpoint_is_packed_as_the_library_packs() -> None:
    weight = torch.randn(33, 96, generator=torch.Generator().manual_seed(0))
    parts, stands = quantise(weight, Scheme("pack-quantized", 8, 32, False))
    codes, _ = quantise(weight, Scheme("int-quantized", 8, 32, False))
    assert torch.equal(parts["weight_packed"], pack_to_int32(codes["weight"], 8))
    zeros = pack_to_int32(codes["weight_zero_point"], 8, packed_dim=0)
    assert torch.equal(parts["weight_zero_point"], zeros)
    assert 0 < (weight - stands).abs().max() < 0.05


def test_a_towers_layer_is_none_of_the_language_models(
    twins: Callable[[str, Scheme], tuple[Path, Path]],
) -> None:
    _, plain = twins("llava-clip-qwen3", INT4)
    tensors = load_file(plain / "model.safetensors")
    (name,) = [n for n in tensors if re.search(r"tower.*layers\.1\.self_attn\.q_proj\.weight", n)]
    parts, _ = quantise(tensors.pop(name), INT4)
    tensors |= {f"{name.removesuffix('.weight')}.{part}": t for part, t in parts.items()}
    save_file(tensors, plain / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((plain / "config.json").read_text())
    config["quantization_config"] = {**described(INT4), "ignore": []}
    (plain / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"q_proj' is quantised and is none of the language"):
        load_model(plain, torch.float32, CPU)


def test_quantised_projections_are_fused_and_stay_so_unless_one_is_not() -> None:
    parts = [quantise(torch.randn(n, 64), INT4)[0] for n in (8, 4)]
    weights = [repack("layer", part, INT4) for part in parts]
    both = fuse([QuantisedLinear(weight, torch.ones(weight.num_outputs)) for weight in weights])
    assert isinstance(both, QuantisedLinear)
    assert torch.equal(dequantise(both.weight), torch.cat([dequantise(w) for w in weights]))
    assert torch.equal(both.bias, torch.ones(12))
    mixed = fuse([QuantisedLinear(weights[0]), Linear(torch.ones(3, 64, dtype=torch.bfloat16))])
    assert isinstance(mixed, Linear)
    assert torch.equal(mixed.weight[:8], dequantise(weights[0]).bfloat16())
    with pytest.raises(ValueError, match=r"x is \(2, 63\) .* the weight takes rows of 64"):
        both(torch.ones(2, 63))
    with pytest.raises(ValueError, match="with and without bias"):
        fuse([QuantisedLinear(weights[0]), QuantisedLinear(weights[1], torch.ones(4))])
