"""The model families that this engine computes, and how one is loaded.

A family is one module and one row here. An architecture without a row is refused by name: a
decoder that is almost right gives answers that are almost right.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForMultimodalLM, AutoProcessor, GenerationConfig

from chiasm_worker.layers.linear import stays_quantised
from chiasm_worker.layers.patches import with_patch_projections
from chiasm_worker.models.base import Family, LoadedModel
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
from chiasm_worker.models.quantised import QuantisedCheckpoint, quantisation_of
from chiasm_worker.models.qwen2_audio import Qwen2Audio
from chiasm_worker.models.qwen_vl import QwenVL

logger = logging.getLogger(__name__)

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
    path: Path, dtype: torch.dtype, device: torch.device, *, packed: bool | None = None
) -> LoadedModel:
    """Load a model folder.

    Args:
        packed: whether quantised weights stay so; None: where the kernel for them computes.

    Raises: ValueError when the folder holds no model of a registered family, OSError when it
    cannot be read.
    """
    if not (path / "config.json").is_file():
        raise ValueError(
            f"{path} holds no config.json, so it is no model folder; point model_path at the "
            "folder that `save_pretrained` wrote."
        )
    config = AutoConfig.from_pretrained(path, local_files_only=True)
    architecture = (config.architectures or ["(none named)"])[0]
    family = find_family(architecture)
    quantisation = quantisation_of(config)
    checkpoint = quantisation and QuantisedCheckpoint(path, quantisation, dtype)
    model = transformers_model(path, config, architecture, dtype, checkpoint)
    processor = AutoProcessor.from_pretrained(path, local_files_only=True)
    processor.chat_template = processor.chat_template or family.default_template
    # Digested before `split` fuses the projections and lets the originals go.
    groups = family.weight_groups(model)
    digests = digest_weights(checkpoint.own_groups(groups) if checkpoint else groups)
    stays, weight_quantization = how_computed(checkpoint, dtype, device, packed)
    if checkpoint and stays:
        checkpoint.let_go(groups)
    model = model.to(device)
    num_bytes = sum(parameter.nbytes for parameter in model.parameters())
    if checkpoint and stays:
        num_bytes += checkpoint.attach(family.weight_groups(model), device)
    decoder, encoder, num_deepstack = family.split(with_patch_projections(model), config)
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
        weight_quantization=weight_quantization,
    )


def transformers_model(
    path: Path,
    config: Any,
    architecture: str,
    dtype: torch.dtype,
    checkpoint: QuantisedCheckpoint | None,
) -> Any:
    """transformers' own model on the CPU, complete; a quantised checkpoint's dequantised."""
    given = {
        "dtype": dtype,
        # So that `check_complete` says it in a sentence.
        "ignore_mismatched_sizes": True,
        "output_loading_info": True,
    }
    if checkpoint is None:
        model, loading = AutoModelForMultimodalLM.from_pretrained(
            path, local_files_only=True, use_safetensors=True, **given
        )
    else:
        # Without what makes transformers look for the library that it was quantised with.
        plain = copy.deepcopy(config)
        del plain.quantization_config
        model, loading = getattr(transformers, architecture).from_pretrained(
            None, config=plain, state_dict=checkpoint.state_dict(), **given
        )
        if (path / "generation_config.json").is_file():
            model.generation_config = GenerationConfig.from_pretrained(path, local_files_only=True)
    check_complete(path, architecture, loading)
    return model.eval().requires_grad_(False)


def how_computed(
    checkpoint: QuantisedCheckpoint | None,
    dtype: torch.dtype,
    device: torch.device,
    packed: bool | None,
) -> tuple[bool, str]:
    """Whether weights stay quantised, and the identity's word for how they are computed with."""
    if checkpoint is None:
        return False, "unquantized"
    stays, reason = stays_quantised(device, dtype)
    if packed is not None:
        stays, reason = packed, "as was asked"
    word = f"{checkpoint.quantisation.name} {'packed' if stays else 'dequantised'}"
    logger.info("weights are computed as %s: %s", word, reason)
    return stays, word


def check_complete(path: Path, architecture: str, loading: Mapping[str, Collection[Any]]) -> None:
    """Raise ValueError unless a checkpoint held exactly the tensors of its architecture.

    transformers only logs the difference: it draws random numbers for what is missing or of another
    shape, and drops what is left over. What is tied to another tensor, or was never more than a
    buffer, it has taken out of the lists.

    Args:
        loading: what transformers says of how the loading went.
    """
    for what, names in (
        ("lacks the tensor", loading["missing_keys"]),
        ("holds a tensor too many,", loading["unexpected_keys"]),
        ("has another shape for", [name for name, *_ in loading["mismatched_keys"]]),
    ):
        if names:
            raise ValueError(
                f"The checkpoint in {path} {what} {min(names)!r} (the first of {len(names)}), and "
                f"so is no {architecture}: its answers would be wrong. Convert or download it "
                "again."
            )


def eos_token_ids(generation_config: GenerationConfig) -> frozenset[int]:
    """The tokens at which transformers' own `generate` stops."""
    eos: Any = generation_config.eos_token_id
    if eos is None:
        return frozenset()
    return frozenset(eos) if isinstance(eos, list) else frozenset({eos})
