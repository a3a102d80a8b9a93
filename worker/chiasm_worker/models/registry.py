"""The model families that this engine computes, and how one is loaded.

A family is one module and one row here. An architecture without a row is refused by name: a
decoder that is almost right gives answers that are almost right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from chiasm_contract.config import Kernels
from transformers import AutoConfig, AutoProcessor, GenerationConfig

from chiasm_worker.attention.choose import Choice, choose
from chiasm_worker.layers.operations import operations_of
from chiasm_worker.layers.patches import with_patch_projections
from chiasm_worker.models.base import Family, LoadedModel
from chiasm_worker.models.checkpoint import how_computed, place, transformers_model
from chiasm_worker.models.digest import digest_weights
from chiasm_worker.models.gemma3 import Gemma3
from chiasm_worker.models.idefics3 import Idefics3
from chiasm_worker.models.internvl import InternVL
from chiasm_worker.models.llava import Llava
from chiasm_worker.models.llava_next import LlavaNext
from chiasm_worker.models.llava_onevision import LlavaOnevision
from chiasm_worker.models.mistral3 import Mistral3
from chiasm_worker.models.mllama import Mllama
from chiasm_worker.models.paligemma import PaliGemma
from chiasm_worker.models.quantisation import check_described
from chiasm_worker.models.quantised import quantised_checkpoint
from chiasm_worker.models.qwen2_audio import Qwen2Audio
from chiasm_worker.models.qwen_vl import QwenVL
from chiasm_worker.models.text import head_dim

FAMILIES: tuple[Family, ...] = (
    QwenVL("qwen3-vl", "Qwen3VLForConditionalGeneration", "interleaved"),
    QwenVL("qwen2.5-vl", "Qwen2_5_VLForConditionalGeneration", "sectioned"),
    QwenVL("qwen2-vl", "Qwen2VLForConditionalGeneration", "sectioned"),
    Llava(),
    LlavaNext(),
    LlavaOnevision(),
    InternVL(),
    Idefics3("idefics3", "Idefics3ForConditionalGeneration"),
    Idefics3("smolvlm", "SmolVLMForConditionalGeneration"),
    Mistral3(),
    Qwen2Audio(),
    Gemma3(),
    PaliGemma(),
    Mllama(),
)


def find_family(architecture: str) -> Family:
    """The family of an architecture.

    Raises: ValueError naming the architecture and every family that there is.
    """
    for family in FAMILIES:
        if architecture in family.architectures:
            return family
    known = ", ".join(f"{f.name} ({', '.join(f.architectures)})" for f in FAMILIES)
    raise ValueError(
        f"Architecture {architecture!r} is not one that this engine computes; the families are "
        f"{known}. Convert the model to one of them or serve it with another engine."
    )


def load_model(
    path: Path,
    dtype: torch.dtype,
    device: torch.device,
    choice: Choice | None = None,
    kernels: Kernels = "auto",
) -> LoadedModel:
    """Load a model folder.

    Args:
        choice: who computes; None: decided here, from the device and the shape of the heads.
        kernels: what the configuration says of it.

    Raises: ValueError when the folder holds no model of a registered family, or when its kernels
    cannot compute it; OSError when it cannot be read.
    """
    if not (path / "config.json").is_file():
        raise ValueError(
            f"{path} holds no config.json, so it is no model folder; point model_path at the "
            "folder that `save_pretrained` wrote."
        )
    check_described(path)
    config = AutoConfig.from_pretrained(path, local_files_only=True)
    architecture = (config.architectures or ["(none named)"])[0]
    family = find_family(architecture)
    # Before the weights, which may take minutes: what cannot be computed is refused at once.
    choice = choice or choose(device, dtype, *_heads(config.text_config), kernels)
    checkpoint = quantised_checkpoint(path, config, dtype)
    model = transformers_model(path, config, architecture, dtype, checkpoint)
    processor = AutoProcessor.from_pretrained(path, local_files_only=True)
    processor.chat_template = processor.chat_template or family.default_template
    # Digested before `split` fuses the projections and lets the originals go.
    groups = family.weight_groups(model)
    digests = digest_weights(checkpoint.own_groups(groups) if checkpoint else groups)
    stays, weight_quantization = how_computed(checkpoint, choice)
    packed = checkpoint.packed if checkpoint and stays else {}
    # What was read of the files is needed no more.
    del checkpoint, groups
    model, packed, num_bytes = place(model, family, packed, device)
    operations = operations_of(choice, dtype, packed)
    # Each weight is let go as soon as it is fused.
    del packed
    whole = with_patch_projections(model)
    decoder, encoder, num_deepstack = family.split(whole, config, operations)
    return LoadedModel(
        family=family,
        architecture=architecture,
        path=path,
        config=config,
        processor=processor,
        decoder=decoder,
        encoder=encoder,
        num_deepstack=num_deepstack,
        eos_token_ids=eos_token_ids(model.generation_config),
        max_positions=config.text_config.max_position_embeddings,
        dtype=dtype,
        device=device,
        digests=digests,
        num_bytes=num_bytes,
        choice=said_whole(choice, operations.exceptions, kernels),
        weight_quantization=weight_quantization,
    )


def said_whole(choice: Choice, exceptions: Sequence[str], asked: Kernels) -> Choice:
    """The choice with what torch computes all the same.

    Raises: ValueError when that is anything, and Triton was asked for.
    """
    if asked == "triton" and exceptions:
        raise ValueError(
            "spec.engine.kernels (chiasm serve: --kernels) is triton, but "
            f"{'; '.join(exceptions)}. Set it to auto, and torch computes these."
        )
    return replace(choice, exceptions=tuple(exceptions))


def _heads(text: Any) -> tuple[int, int]:
    """Numbers in a head, and heads that share K and V."""
    return head_dim(text), text.num_attention_heads // text.num_key_value_heads


def eos_token_ids(generation_config: GenerationConfig) -> frozenset[int]:
    """The tokens at which transformers' own `generate` stops."""
    eos: Any = generation_config.eos_token_id
    if eos is None:
        return frozenset()
    return frozenset(eos) if isinstance(eos, list) else frozenset({eos})
