"""Random tiny models of every family, written as ordinary model folders.

Tests and benchmarks hold the engine against transformers on them: several shapes a family
(grouped heads, biases, windows, tied heads, other towers), made from transformers' own
configuration classes, with a byte-level tokenizer whose answers are not sensible but decodable.

Must not know: the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers as tf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

QWEN_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% for c in m.content %}{% if c.type == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c.text }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAVA_TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' and m.content|selectattr('type', 'eq', "
    "'image')|list %}{{ raise_exception('no pictures in system messages') }}{% endif %}"
    "{{ m.role.upper() }}: "
    "{% for c in m.content %}{% if c.type == 'image' %}<image>\n{% else %}{{ c.text }}"
    "{% endif %}{% endfor %} {% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
_QWEN_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_LLAVA_TOKENS = ("<s>", "</s>", "<image>")
_MERGES = ("th", "in", "er", "an", "on", "re", "at", "en", "st", "ou")


@dataclass(frozen=True)
class TinyModel:
    """One shape of one family; `text` and `vision` override the family's base configuration."""

    name: str
    family: str
    text: dict[str, Any] = field(default_factory=dict)
    vision: dict[str, Any] = field(default_factory=dict)
    top: dict[str, Any] = field(default_factory=dict)


TINY_MODELS: tuple[TinyModel, ...] = (
    TinyModel("qwen3-grouped", "qwen3-vl"),
    TinyModel(
        "qwen3-tied-bias",
        "qwen3-vl",
        text={"num_key_value_heads": 4, "attention_bias": True, "head_dim": 24},
        vision={"deepstack_visual_indexes": [0], "patch_size": 14, "depth": 2},
        top={"tie_word_embeddings": True},
    ),
    TinyModel(
        "qwen3-yarn",
        "qwen3-vl",
        text={
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 512,
                "mrope_section": [4, 2, 2],
                "mrope_interleaved": True,
            },
        },
    ),
    TinyModel("qwen2.5-grouped", "qwen2.5-vl"),
    TinyModel(
        "qwen2.5-window",
        "qwen2.5-vl",
        text={"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1},
    ),
    TinyModel("qwen2-grouped", "qwen2-vl"),
    TinyModel("llava-clip-llama", "llava"),
    TinyModel(
        "llava-siglip-qwen2",
        "llava",
        text={"model_type": "qwen2"},
        vision={"model_type": "siglip_vision_model"},
        top={"vision_feature_select_strategy": "full", "vision_feature_layer": -1},
    ),
    TinyModel(
        "llava-clip-mistral-window",
        "llava",
        text={
            "model_type": "mistral",
            "sliding_window": 20,
            "num_attention_heads": 6,
            "hidden_size": 96,
        },
        top={"vision_feature_layer": [-1, -2]},
    ),
    TinyModel("llava-clip-qwen3", "llava", text={"model_type": "qwen3", "head_dim": 32}),
)


def write_tiny_model(tiny: TinyModel, folder: Path, seed: int = 0) -> Path:
    """Write a tiny model with random weights to `folder` and return it."""
    writers: dict[str, Callable[[TinyModel], tuple[Any, Any, Any]]] = {
        "qwen3-vl": _qwen3,
        "qwen2.5-vl": _qwen2_5,
        "qwen2-vl": _qwen2,
        "llava": _llava,
    }
    config, model_class, processor = writers[tiny.family](tiny)
    torch.manual_seed(seed)
    model = model_class(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Larger than an initialiser's values, so that pictures and positions change answers.
            if parameter.dim() > 1:
                parameter.normal_(0.0, 1.6 / parameter.shape[-1] ** 0.5)
            elif name.endswith("bias"):
                parameter.normal_(0.0, 0.1)
    eos = processor.tokenizer.eos_token_id
    model.generation_config = tf.GenerationConfig(eos_token_id=eos, pad_token_id=eos)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def _byte_tokenizer(tokens: tuple[str, ...]) -> tuple[Tokenizer, dict[str, int]]:
    vocab = {symbol: i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = []
    for pair in _MERGES:
        vocab[pair] = len(vocab)
        merges.append((pair[0], pair[1]))
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True) for token in tokens])
    start = backend.get_vocab_size(with_added_tokens=False)
    return backend, {token: start + i for i, token in enumerate(tokens)}


def _qwen_tokenizer() -> tuple[Any, dict[str, int]]:
    backend, ids = _byte_tokenizer(_QWEN_TOKENS)
    tokenizer = tf.PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=_QWEN_TOKENS[2], pad_token=_QWEN_TOKENS[0]
    )
    return tokenizer, ids


def _qwen_ids(ids: dict[str, int]) -> dict[str, int]:
    return {
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
    }


def _text(**overrides: Any) -> dict[str, Any]:
    return {
        "vocab_size": 288,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        **overrides,
    }


def _mrope(sections: list[int], **more: Any) -> dict[str, Any]:
    return {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "mrope_section": sections,
        **more,
    }


def _qwen_processor(processor_class: Any, video_class: Any, tokenizer: Any, patch_size: int) -> Any:
    size = {"shortest_edge": 56 * 56, "longest_edge": 224 * 224}
    return processor_class(
        image_processor=tf.Qwen2VLImageProcessor(patch_size=patch_size, size=size),
        tokenizer=tokenizer,
        video_processor=video_class(patch_size=patch_size),
        chat_template=QWEN_TEMPLATE,
    )


def _qwen3(tiny: TinyModel) -> tuple[Any, Any, Any]:
    tokenizer, ids = _qwen_tokenizer()
    text = {
        **_text(head_dim=16, rope_parameters=_mrope([4, 2, 2], mrope_interleaved=True)),
        **tiny.text,
    }
    if text["head_dim"] == 24:
        text["rope_parameters"] = _mrope([4, 4, 4], mrope_interleaved=True)
    vision = {
        "depth": 3,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "patch_size": 16,
        "out_hidden_size": text["hidden_size"],
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0, 1],
        **tiny.vision,
    }
    config = tf.Qwen3VLConfig(text_config=text, vision_config=vision, **_qwen_ids(ids), **tiny.top)
    processor = _qwen_processor(
        tf.Qwen3VLProcessor, tf.Qwen3VLVideoProcessor, tokenizer, vision["patch_size"]
    )
    return config, tf.Qwen3VLForConditionalGeneration, processor


def _qwen2_5(tiny: TinyModel) -> tuple[Any, Any, Any]:
    tokenizer, ids = _qwen_tokenizer()
    text = {**_text(rope_parameters=_mrope([2, 3, 3])), **tiny.text}
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "patch_size": 14,
        "out_hidden_size": text["hidden_size"],
        "fullatt_block_indexes": [1],
        **tiny.vision,
    }
    config = tf.Qwen2_5_VLConfig(
        text_config=text, vision_config=vision, **_qwen_ids(ids), **tiny.top
    )
    processor = _qwen_processor(
        tf.Qwen2_5_VLProcessor, tf.Qwen2VLVideoProcessor, tokenizer, vision["patch_size"]
    )
    return config, tf.Qwen2_5_VLForConditionalGeneration, processor


def _qwen2(tiny: TinyModel) -> tuple[Any, Any, Any]:
    tokenizer, ids = _qwen_tokenizer()
    text = {**_text(rope_parameters=_mrope([2, 3, 3])), **tiny.text}
    vision = {
        "depth": 2,
        "embed_dim": 32,
        "num_heads": 2,
        "patch_size": 14,
        "hidden_size": text["hidden_size"],
        "mlp_ratio": 2,
        **tiny.vision,
    }
    config = tf.Qwen2VLConfig(text_config=text, vision_config=vision, **_qwen_ids(ids), **tiny.top)
    processor = _qwen_processor(
        tf.Qwen2VLProcessor, tf.Qwen2VLVideoProcessor, tokenizer, vision["patch_size"]
    )
    return config, tf.Qwen2VLForConditionalGeneration, processor


def _llava(tiny: TinyModel) -> tuple[Any, Any, Any]:
    backend, ids = _byte_tokenizer(_LLAVA_TOKENS)
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", ids["<s>"])]
    )
    tokenizer = tf.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=_LLAVA_TOKENS[0],
        eos_token=_LLAVA_TOKENS[1],
        pad_token=_LLAVA_TOKENS[1],
    )
    vision = {
        "model_type": "clip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "patch_size": 14,
        "image_size": 56,
        **tiny.vision,
    }
    text = {"model_type": "llama", **_text(), **tiny.text}
    has_class_token = vision["model_type"] == "clip_vision_model"
    strategy = tiny.top.get("vision_feature_select_strategy", "default")
    config = tf.LlavaConfig(
        text_config=text,
        vision_config=vision,
        image_token_index=ids["<image>"],
        image_seq_length=(vision["image_size"] // vision["patch_size"]) ** 2,
        **tiny.top,
    )
    side = {"height": vision["image_size"], "width": vision["image_size"]}
    processor = tf.LlavaProcessor(
        image_processor=tf.CLIPImageProcessor(size=side, crop_size=side),
        tokenizer=tokenizer,
        patch_size=vision["patch_size"],
        vision_feature_select_strategy=strategy,
        num_additional_image_tokens=int(has_class_token),
        chat_template=LLAVA_TEMPLATE,
    )
    return config, tf.LlavaForConditionalGeneration, processor
