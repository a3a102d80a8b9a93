"""Random tiny models of every family, written as ordinary model folders.

Tests and benchmarks hold the engine against transformers on them: several shapes a family
(grouped heads, biases, windows, tied heads, other towers), made from transformers' own
configuration classes, with a byte-level tokenizer whose answers are not sensible but decodable.
A family is one module here, with its shapes, and one name in `_FAMILIES`.

Must not know: the engine.
"""

from __future__ import annotations

from pathlib import Path

import torch
import transformers as tf

from chiasm_worker.models.tiny import (
    gemma,
    idefics,
    internvl,
    llava,
    mllama,
    pixtral,
    qwen2_audio,
    qwen_vl,
)
from chiasm_worker.models.tiny.base import TinyModel

__all__ = ["TINY_MODELS", "TinyModel", "write_tiny_model"]

_FAMILIES = (qwen_vl, llava, pixtral, internvl, idefics, qwen2_audio, gemma, mllama)
TINY_MODELS: tuple[TinyModel, ...] = tuple(tiny for family in _FAMILIES for tiny in family.MODELS)


def write_tiny_model(tiny: TinyModel, folder: Path, seed: int = 0) -> Path:
    """Write a tiny model with random weights to `folder` and return it."""
    config, model_class, processor = tiny.make(tiny)
    torch.manual_seed(seed)
    model = model_class(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Larger than an initialiser's values, so that pictures and positions change answers.
            if parameter.dim() > 1:
                parameter.normal_(0.0, 1.6 / parameter.shape[-1] ** 0.5)
            elif name.endswith("bias"):
                parameter.normal_(0.0, 0.1)
        for parameter in model.parameters():
            # Gates and norms around 1: at zero they would do nothing.
            if parameter.dim() == 1 and not parameter.any():
                parameter.normal_(0.0, 0.3)
    eos = processor.tokenizer.eos_token_id
    model.generation_config = tf.GenerationConfig(eos_token_id=eos, pad_token_id=eos)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
