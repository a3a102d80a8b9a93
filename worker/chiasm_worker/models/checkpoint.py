"""transformers' own model from a folder, complete, and where its weights are computed with.

Must not know: which families there are, our decoder.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForMultimodalLM, GenerationConfig

from chiasm_worker.attention.choose import Choice
from chiasm_worker.kernels.quantised_linear.packed import PackedWeight
from chiasm_worker.models.base import Family
from chiasm_worker.models.files import weight_files
from chiasm_worker.models.quantised import QuantisedCheckpoint

logger = logging.getLogger(__name__)


def transformers_model(
    path: Path,
    config: Any,
    architecture: str,
    dtype: torch.dtype,
    checkpoint: QuantisedCheckpoint | None,
) -> Any:
    """transformers' own model on the CPU, complete; a quantised checkpoint's dequantised.

    Raises: ValueError for a damaged file and for a checkpoint that is not complete, OSError for a
    missing file.
    """
    given = {
        "dtype": dtype,
        # So that `check_complete` says it in a sentence.
        "ignore_mismatched_sizes": True,
        "output_loading_info": True,
    }
    if checkpoint is None:
        weight_files(path)
        model, loading = AutoModelForMultimodalLM.from_pretrained(
            path, local_files_only=True, use_safetensors=True, **given
        )
    else:
        # Without what makes transformers look for the library that it was quantised with.
        plain = copy.deepcopy(config)
        del plain.quantization_config
        model, loading = getattr(transformers, architecture).from_pretrained(
            None, config=plain, state_dict=checkpoint.take_state_dict(), **given
        )
        if (path / "generation_config.json").is_file():
            model.generation_config = GenerationConfig.from_pretrained(path, local_files_only=True)
    check_complete(path, architecture, loading)
    return model.eval().requires_grad_(False)


def how_computed(checkpoint: QuantisedCheckpoint | None, choice: Choice) -> tuple[bool, str]:
    """Whether weights stay quantised, and the identity's word for how they are computed with."""
    if checkpoint is None:
        return False, "unquantized"
    stays = choice.name == "triton"
    word = f"{checkpoint.quantisation.name} {'packed' if stays else 'dequantised'}"
    logger.info("weights are computed as %s", word)
    return stays, word


def place(
    model: Any, family: Family, packed: Mapping[str, PackedWeight], device: torch.device
) -> tuple[Any, dict[str, PackedWeight], int]:
    """A model and its packed weights on their device, and what its weights take there.

    Args:
        packed: weights of the decoder's projections that stay quantised; the model's own of the
            same names are let go.
    """
    language = family.weight_groups(model).language
    for name in packed:
        weight = language[f"{name}.weight"]
        weight.data = weight.new_empty(0)
    placed = model.to(device)
    ours = {name: weight.to(device) for name, weight in packed.items()}
    num_bytes = sum(weight.nbytes for weight in placed.parameters())
    return placed, ours, num_bytes + sum(weight.num_bytes for weight in ours.values())


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
