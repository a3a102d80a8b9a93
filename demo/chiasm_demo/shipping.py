"""Writes a model folder in the form that transformers and the worker load: `demo/model/`.

Invariants: the folder holds at most `MAX_TOTAL_BYTES`; weights are stored as bfloat16 and the
model that is measured is the stored one (rounded first, then tested), so nothing is lost between
the measured and the shipped model.
"""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from transformers import AutoModelForImageTextToText, AutoProcessor, Qwen3VLForConditionalGeneration

from chiasm_demo.model_config import build_generation_config, build_processor
from chiasm_demo.tokenizer import build_tokenizer

MAX_TOTAL_BYTES = 25_000_000


def ship(model: Qwen3VLForConditionalGeneration, folder: Path) -> int:
    """Save weights (bfloat16), configuration and processor; returns the folder's bytes."""
    tokenizer = build_tokenizer()
    folder.mkdir(parents=True, exist_ok=True)
    model.generation_config = build_generation_config(tokenizer)
    stored = Qwen3VLForConditionalGeneration(copy.deepcopy(model.config))
    stored.load_state_dict(model.state_dict())
    stored.generation_config = model.generation_config
    stored.to(torch.bfloat16).save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    model.config.save_pretrained(folder)  # computes in float32, whatever the storage
    build_processor(tokenizer).save_pretrained(folder)
    total_bytes = sum(path.stat().st_size for path in folder.iterdir())
    if total_bytes > MAX_TOTAL_BYTES:
        raise ValueError(
            f"{folder} holds {total_bytes} bytes, more than the {MAX_TOTAL_BYTES} allowed; "
            "make the model smaller in model_config.py"
        )
    return total_bytes


def load(folder: Path) -> tuple[Qwen3VLForConditionalGeneration, object]:
    """The shipped model in float32, ready to answer, and its processor; reads local files only."""
    model = AutoModelForImageTextToText.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True
    )
    return model.eval(), AutoProcessor.from_pretrained(folder, local_files_only=True)
