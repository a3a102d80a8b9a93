"""Tiny Idefics3 and SmolVLM models."""

from __future__ import annotations

from typing import Any

import transformers as tf

from chiasm_worker.models.tiny.base import TinyModel, text_config, tokenizer, tower_config

TEMPLATE = (
    "<|im_start|>{% for m in messages %}{{ m.role|capitalize }}"
    "{% if m.content[0].type == 'image' %}:{% else %}: {% endif %}"
    "{% for c in m.content %}{% if c.type == 'text' %}{{ c.text }}"
    "{% elif c.type == 'image' %}<image>{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
_TOKENS = (
    "<|im_start|>",
    "<end_of_utterance>",
    "<fake_token_around_image>",
    "<image>",
    "<global-img>",
    *(f"<row_{row}_col_{col}>" for row in range(1, 4) for col in range(1, 4)),
)
_TILE, _SCALE = 56, 2


def _parts(tiny: TinyModel) -> tuple[dict[str, Any], Any, dict[str, Any], dict[str, Any]]:
    tokens, ids = tokenizer(_TOKENS, eos="<end_of_utterance>")
    vision = {**tower_config(image_size=_TILE), **tiny.vision}
    config = {
        "text_config": {
            "model_type": "llama",
            "pad_token_id": ids["<end_of_utterance>"],
            **text_config(),
            **tiny.text,
        },
        "vision_config": vision,
        "image_token_id": ids["<image>"],
        "pad_token_id": ids["<end_of_utterance>"],
        "scale_factor": _SCALE,
        **tiny.top,
    }
    sizes = {"size": {"longest_edge": 3 * _TILE}, "max_image_size": {"longest_edge": _TILE}}
    shared = {
        "image_seq_len": (_TILE // vision["patch_size"] // _SCALE) ** 2,
        "chat_template": TEMPLATE,
    }
    return config, tokens, sizes, shared


def _idefics3(tiny: TinyModel) -> tuple[Any, Any, Any]:
    config, tokens, sizes, shared = _parts(tiny)
    processor = tf.Idefics3Processor(tf.Idefics3ImageProcessor(**sizes), tokens, **shared)
    return tf.Idefics3Config(**config), tf.Idefics3ForConditionalGeneration, processor


def _smolvlm(tiny: TinyModel) -> tuple[Any, Any, Any]:
    config, tokens, sizes, shared = _parts(tiny)
    processor = tf.SmolVLMProcessor(
        tf.SmolVLMImageProcessor(**sizes), tokens, tf.SmolVLMVideoProcessor(**sizes), **shared
    )
    return tf.SmolVLMConfig(**config), tf.SmolVLMForConditionalGeneration, processor


MODELS: tuple[TinyModel, ...] = (
    TinyModel("idefics3", "idefics3", _idefics3),
    TinyModel("smolvlm", "smolvlm", _smolvlm, text={"num_key_value_heads": 4}),
    TinyModel("smolvlm-tied", "smolvlm", _smolvlm, top={"tie_word_embeddings": True}),
)
