"""What all tiny models share: their description, sizes and tokenizer.

Must not know: families.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import transformers as tf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

_MERGES = ("th", "in", "er", "an", "on", "re", "at", "en", "st", "ou")


@dataclass(frozen=True)
class TinyModel:
    """One shape of one family; `text` and `vision` override the family's base configuration."""

    name: str
    family: str
    # The configuration, transformers' model class and the processor of this shape.
    make: Callable[[TinyModel], tuple[Any, Any, Any]]
    text: dict[str, Any] = field(default_factory=dict)
    vision: dict[str, Any] = field(default_factory=dict)
    top: dict[str, Any] = field(default_factory=dict)
    processor: dict[str, Any] = field(default_factory=dict)


def text_config(**overrides: Any) -> dict[str, Any]:
    """A text model's sizes."""
    return {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        **overrides,
    }


def tower_config(**overrides: Any) -> dict[str, Any]:
    """A CLIP-like tower's sizes."""
    return {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "patch_size": 14,
        "image_size": 56,
        **overrides,
    }


def tokenizer(
    special: tuple[str, ...], eos: str, bos: str | None = None, **named: str
) -> tuple[Any, dict[str, int]]:
    """A byte-level tokenizer with a few merges, and the ids of its special tokens.

    Args:
        special: every token that templates and processors write.
        bos: written before each text, where given.
        named: what the processor asks its tokenizer for, such as start_image_token.
    """
    vocab = {symbol: i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = []
    for pair in _MERGES:
        vocab[pair] = len(vocab)
        merges.append((pair[0], pair[1]))
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True) for token in special])
    start = backend.get_vocab_size(with_added_tokens=False)
    ids = {token: start + i for i, token in enumerate(special)}
    if bos is not None:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, ids[bos])]
        )
    fast = tf.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=bos,
        eos_token=eos,
        pad_token=eos,
        extra_special_tokens=named,
    )
    return fast, ids
