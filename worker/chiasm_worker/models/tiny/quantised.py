"""A tiny model's checkpoint as compressed-tensors would have quantised it, and its plain twin.

By the format's formula, without the library. The twin holds what the codes stand for.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from chiasm_worker.kernels.quantised_linear.packed import Scheme

Tensors = dict[str, torch.Tensor]

_PROJECTION = re.compile(r"layers\.\d+\.(self_attn|cross_attn|mlp)\.\w+_proj\.weight$")
_TOWERS = re.compile(r"vision|visual|audio|image")
_FILE = "model.safetensors"


def write_quantised(folder: Path, scheme: Scheme, quantised: Path, plain: Path) -> None:
    """Write the checkpoint in `folder` twice: quantised, and with the weights that this makes.

    Scales are bf16, as in most checkpoints.
    """
    tensors = load_file(folder / _FILE)
    codes: Tensors = {}
    twins: Tensors = {}
    for name in list(tensors):
        if _PROJECTION.search(name) and not _TOWERS.search(name):
            layer = name.removesuffix(".weight")
            parts, twins[name] = quantise(tensors.pop(name), scheme)
            codes |= {f"{layer}.{part}": tensor for part, tensor in parts.items()}
    for to, more in ((quantised, codes), (plain, twins)):
        shutil.copytree(folder, to)
        save_file({**tensors, **more}, to / _FILE, metadata={"format": "pt"})
    config = json.loads((quantised / "config.json").read_text())
    config["quantization_config"] = described(scheme)
    (quantised / "config.json").write_text(json.dumps(config))


def quantise(weight: torch.Tensor, scheme: Scheme) -> tuple[Tensors, torch.Tensor]:
    """What a file holds of a weight [N, K], and what it stands for."""
    num_outputs, size = weight.shape
    groups = weight.float().view(num_outputs, -1, scheme.group or size)
    half, last = 1 << (scheme.bits - 1), (1 << scheme.bits) - 1
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    if scheme.symmetric:
        scale = (torch.maximum(-low, high) / (last / 2)).bfloat16().float()
        zero = torch.zeros_like(scale)
    else:
        scale = ((high - low) / last).bfloat16().float()
        zero = (-half - low / scale).round().clamp(-half, half - 1)
    codes = (groups / scale[..., None] + zero[..., None]).round().clamp(-half, half - 1)
    stands = ((codes - zero[..., None]) * scale[..., None]).view(num_outputs, size)
    codes = codes.view(num_outputs, size).to(torch.int8)
    parts = {"weight_scale": scale.bfloat16()}
    packs = scheme.form == "pack-quantized"
    if packs:
        parts["weight_packed"] = _packed(codes, scheme.bits)
        parts["weight_shape"] = torch.tensor([num_outputs, size])
    else:
        parts["weight"] = codes
    if not scheme.symmetric:
        zeros = zero.to(torch.int8)
        parts["weight_zero_point"] = (
            _packed(zeros.T, scheme.bits).T.contiguous() if packs else zeros
        )
    return parts, stands.to(weight.dtype)


def _packed(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """[rows, ceil(count * bits / 32)] int32 of signed codes [rows, count], the first one lowest."""
    rows, count = codes.shape
    each = 32 // bits
    above = torch.zeros((rows, -(-count // each) * each), dtype=torch.int32)
    above[:, :count] = codes.to(torch.int32) + (1 << (bits - 1))
    steps = torch.arange(0, 32, bits, dtype=torch.int32)
    return (above.view(rows, -1, each) << steps).sum(-1, dtype=torch.int32)


def described(scheme: Scheme) -> dict[str, Any]:
    """What config.json says of it."""
    strategy = "group" if scheme.group else "channel"
    return {
        "quant_method": "compressed-tensors",
        "format": scheme.form,
        "quantization_status": "compressed",
        "ignore": ["lm_head", "re:.*(vision|visual|audio|image).*"],
        "kv_cache_scheme": None,
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "input_activations": None,
                "output_activations": None,
                "weights": {
                    "num_bits": scheme.bits,
                    "type": "int",
                    "symmetric": scheme.symmetric,
                    "strategy": strategy,
                    "group_size": scheme.group or None,
                    "actorder": None,
                    "dynamic": False,
                },
            }
        },
    }
