"""The engine end to end with Triton's attention on the interpreter, beside torch's.

Both answer the same conversations; the tokens must be the same. A quantised cache is held to torch
over K and V that were rounded to its codes and back.

Must not know: kernels. Runs only in a process whose Triton interprets.
"""

from __future__ import annotations

import io
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from chiasm_worker.attention.base import (
    AttentionBackend,
    AttentionLayer,
    AttentionStep,
    CrossRows,
    SequenceChunk,
)
from chiasm_worker.attention.triton_backend import TritonAttention
from chiasm_worker.engine.engine import Engine
from chiasm_worker.equality import Conversation, Prepared, ask, num_mismatches
from chiasm_worker.kernels.codes import decode, encode
from chiasm_worker.models.registry import load_model
from chiasm_worker.models.tiny import TINY_MODELS, write_tiny_model
from PIL import Image

NUM_TOKENS = 6
# Prompts are longer: they come in chunks, and decoding requests share their batches.
CHUNK = 48


class _RoundedStep:
    """A step whose new K and V are what a quantised cache makes of them."""

    def __init__(self, step: AttentionStep, dtype: torch.dtype) -> None:
        self._step = step
        self._dtype = dtype

    @property
    def cross_rows(self) -> CrossRows | None:
        """As the step has them."""
        return self._step.cross_rows

    def forward(self, layer: AttentionLayer, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        """With rounded K and V."""
        return self._step.forward(layer, q, decode(*encode(kv, self._dtype)).to(kv.dtype))

    def cross(self, layer: AttentionLayer, q: torch.Tensor) -> torch.Tensor:
        """As the step does."""
        return self._step.cross(layer, q)


@dataclass
class _Rounded:
    """A backend over rounded K and V."""

    backend: AttentionBackend
    dtype: torch.dtype
    numerics: str = "torch over rounded K and V"

    def begin(self, chunks: Sequence[SequenceChunk]) -> AttentionStep:
        """A step over rounded K and V."""
        return _RoundedStep(self.backend.begin(chunks), self.dtype)


def use_triton(engine: Engine, cache: torch.dtype | None) -> None:
    """Give an engine Triton's attention; `cache`: a quantised cache beside the arena's own."""
    kv, cross = engine.arena.kv, engine.arena.cross
    if cache is None:
        engine.runner.attention = TritonAttention(kv, None, cross)
        return
    codes = torch.zeros(kv.shape, dtype=cache)
    scales = torch.zeros(kv.shape[:-1], dtype=torch.float32)
    engine.runner.attention = TritonAttention(codes, scales, cross)


def answers(
    prepared: Prepared,
    asked: Sequence[Conversation],
    max_tokens: int,
    cache: torch.dtype | None,
    **limits: int,
) -> tuple[list[list[int]], list[list[int]]]:
    """(torch's, Triton's) tokens of the same conversations, in batches as they come."""
    plain = prepared.engine(**limits)
    if cache is not None:
        plain.runner.attention = _Rounded(plain.runner.attention, cache)
    ours = prepared.engine(**limits)
    use_triton(ours, cache)
    both = [prepared.generate(engine, asked, max_tokens, 1) for engine in (plain, ours)]
    return both[0], both[1]


def mismatches(name: str, seed: int, cache: str | None) -> dict[str, Any]:
    """How many tokens differ for fresh conversations with a tiny model of fresh weights.

    Args:
        cache: "e4m3" or "int8"; None: the model's own type.
    """
    rng = random.Random(seed)
    tiny = next(tiny for tiny in TINY_MODELS if tiny.name == name)
    dtype = None if cache is None else {"e4m3": torch.uint8, "int8": torch.int8}[cache]
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_tiny_model(tiny, Path(scratch) / name, seed=rng.getrandbits(31))
        prepared = Prepared(load_model(folder, torch.float32, torch.device("cpu")))
        asked = [ask("What is on the left?", [_picture(rng)])]
        if not prepared.model.family.needs_media:
            asked.append(ask("Name two colours."))
        asked.append(ask("Which one is red?", [_picture(rng), _picture(rng)]))
        plain, ours = answers(prepared, asked, NUM_TOKENS, dtype, max_num_batched_tokens=CHUNK)
    return {
        "num_tokens": sum(map(len, plain)),
        "num_mismatches": num_mismatches(plain, ours),
        "num_kinds": len({token for answer in plain for token in answer}),
    }


def _picture(rng: random.Random) -> bytes:
    noise = np.random.default_rng(rng.getrandbits(32)).integers(0, 256, (56, 72, 3))
    buffer = io.BytesIO()
    Image.fromarray(noise.astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()
