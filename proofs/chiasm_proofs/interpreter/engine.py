"""The engine end to end on Triton's kernels, interpreted, beside torch.

Both answer the same conversations; the tokens must be the same, and which kernels were launched is
said. A quantised cache is held to torch over K and V that were rounded to its codes and back.

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
from chiasm_worker.attention.choose import Choice
from chiasm_worker.attention.heads import HeadNorm, Rotation, prepare
from chiasm_worker.attention.triton_backend import TritonAttention
from chiasm_worker.engine.engine import Engine
from chiasm_worker.equality import Conversation, Prepared, ask, num_mismatches
from chiasm_worker.kernels.codes import decode, encode
from chiasm_worker.models.registry import load_model
from chiasm_worker.models.tiny import TINY_MODELS, write_tiny_model
from PIL import Image

from chiasm_proofs.interpreter.checker import CHECKER
from chiasm_proofs.interpreter.launches import missing

TORCH = Choice("torch", "it is what kernels are held to")
TRITON = Choice("triton", "its kernels are interpreted")


@dataclass(frozen=True)
class Talk:
    """What is asked. Prompts come in chunks, so that decoding requests share their batches.

    Attributes:
        chunk: tokens of a step, fewer than prompts have, but room for a picture.
        num_tokens: of an answer.
    """

    chunk: int
    num_tokens: int
    seen: str
    words: str
    compared: str | None

    def conversations(self, rng: random.Random, *, needs_media: bool) -> list[Conversation]:
        """With pictures drawn anew."""
        asked = [ask(self.seen, [_picture(rng)])]
        if not needs_media:
            asked.append(ask(self.words))
        if self.compared is not None:
            asked.append(ask(self.compared, [_picture(rng), _picture(rng)]))
        return asked


WHOLE = Talk(48, 6, "What is on the left?", "Name two colours.", "Which one is red?")
QUICK = Talk(24, 3, "Left?", "Two?", None)


class _RoundedStep:
    """A step whose new K and V are what a quantised cache makes of them."""

    def __init__(self, step: AttentionStep, dtype: torch.dtype, num_kv_heads: int) -> None:
        self._step = step
        self._dtype = dtype
        self._num_kv_heads = num_kv_heads

    @property
    def cross_rows(self) -> CrossRows | None:
        """As the step has them."""
        return self._step.cross_rows

    def forward(
        self,
        layer: AttentionLayer,
        heads: torch.Tensor,
        rotation: Rotation,
        norm: HeadNorm | None = None,
    ) -> torch.Tensor:
        """With K and V rounded behind norm and rotation."""
        q, kv = prepare(heads, self._num_kv_heads, rotation, norm)
        kv = decode(*encode(kv, self._dtype)).to(kv.dtype)
        heads = torch.cat((q, kv.flatten(1, 2)), dim=1)
        return self._step.forward(layer, heads, Rotation.none(heads))

    def cross(self, layer: AttentionLayer, q: torch.Tensor) -> torch.Tensor:
        """As the step does."""
        return self._step.cross(layer, q)


@dataclass
class _Rounded:
    """A backend over rounded K and V."""

    backend: AttentionBackend
    dtype: torch.dtype
    num_kv_heads: int
    numerics: str = "torch over rounded K and V"

    def begin(self, chunks: Sequence[SequenceChunk]) -> AttentionStep:
        """A step over rounded K and V."""
        return _RoundedStep(self.backend.begin(chunks), self.dtype, self.num_kv_heads)


def use_cache(engine: Engine, cache: torch.dtype) -> None:
    """Give an engine of Triton's a quantised cache beside the arena's own."""
    kv, cross = engine.arena.kv, engine.arena.cross
    codes = torch.zeros(kv.shape, dtype=cache)
    scales = torch.zeros(kv.shape[:-1], dtype=torch.float32)
    engine.runner.attention = TritonAttention(codes, scales, cross)


def loaded(folder: Path, implementation: Choice) -> Prepared:
    """A model that is computed by one implementation, throughout."""
    return Prepared(load_model(folder, torch.float32, torch.device("cpu"), implementation))


def answers(
    prepared: Prepared, asked: Sequence[Conversation], talk: Talk, cache: torch.dtype | None
) -> list[list[int]]:
    """The tokens of conversations that come one after the other and share batches."""
    engine = prepared.engine(max_num_batched_tokens=talk.chunk)
    if cache is not None and prepared.model.choice.name == "torch":
        attention, num_kv_heads = engine.runner.attention, engine.spec.num_kv_heads
        engine.runner.attention = _Rounded(attention, cache, num_kv_heads)
    elif cache is not None:
        use_cache(engine, cache)
    return prepared.generate(engine, asked, talk.num_tokens, 1)


def mismatches(name: str, seed: int, cache: str | None, *, quick: bool) -> dict[str, Any]:
    """How many tokens differ for fresh conversations with a tiny model of fresh weights.

    Args:
        cache: "e4m3" or "int8"; None: the model's own type.
        quick: few conversations and short answers.

    Returns: beside numbers of tokens, the launches of each kernel, and what was not launched.
    """
    rng = random.Random(seed)
    tiny = next(tiny for tiny in TINY_MODELS if tiny.name == name)
    dtype = None if cache is None else {"e4m3": torch.uint8, "int8": torch.int8}[cache]
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_tiny_model(tiny, Path(scratch) / name, seed=rng.getrandbits(31))
        torchs, tritons = loaded(folder, TORCH), loaded(folder, TRITON)
        talk = QUICK if quick else WHOLE
        asked = talk.conversations(rng, needs_media=torchs.model.family.needs_media)
        plain = answers(torchs, asked, talk, dtype)
        CHECKER.launches.clear()
        ours = answers(tritons, asked, talk, dtype)
    return {
        "num_tokens": sum(map(len, plain)),
        "num_mismatches": num_mismatches(plain, ours),
        "num_kinds": len({token for answer in plain for token in answer}),
        "kernels": dict(CHECKER.launches),
        "not_launched": list(missing(tritons.model.decoder.spec, CHECKER.launches)),
        "exceptions": list(tritons.model.choice.exceptions),
    }


def _picture(rng: random.Random) -> bytes:
    noise = np.random.default_rng(rng.getrandbits(32)).integers(0, 256, (56, 72, 3))
    buffer = io.BytesIO()
    Image.fromarray(noise.astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()
