"""Tiny Mllama."""

from __future__ import annotations

from typing import Any

import transformers as tf

from chiasm_worker.models.tiny.base import TinyModel, text_config, tokenizer

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{% for c in m.content %}{% if c.type == 'image' %}<|image|>{% else %}{{ c.text }}{% endif %}"
    "{% endfor %}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
_TOKENS = (
    "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
    "<|eot_id|>", "<|python_tag|>", "<|image|>",
)  # fmt: skip


def _mllama(tiny: TinyModel) -> tuple[Any, Any, Any]:
    fast, ids = tokenizer(_TOKENS, eos="<|eot_id|>", bos="<|begin_of_text|>")
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_global_layers": 2,
        "attention_heads": 2,
        "patch_size": 14,
        "image_size": 28,
        "intermediate_layers_indices": [0, 1],
        "vision_output_dim": 96,
        **tiny.vision,
    }
    text = {
        **text_config(
            num_hidden_layers=5,
            cross_attention_layers=[1, 3],
            bos_token_id=ids["<|begin_of_text|>"],
            eos_token_id=ids["<|eot_id|>"],
            pad_token_id=ids["<|end_of_text|>"],
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        **tiny.text,
    }
    config = tf.MllamaConfig(
        text_config=text, vision_config=vision, image_token_index=ids["<|image|>"], **tiny.top
    )
    side = {"height": vision["image_size"], "width": vision["image_size"]}
    processor = tf.MllamaProcessor(
        image_processor=tf.MllamaImageProcessor(size=side),
        tokenizer=fast,
        chat_template=TEMPLATE,
    )
    return config, tf.MllamaForConditionalGeneration, processor


MODELS = (
    TinyModel("mllama-grouped", "mllama", _mllama),
    TinyModel(
        "mllama-llama3-rope",
        "mllama",
        _mllama,
        text={
            "num_key_value_heads": 4,
            "cross_attention_layers": [0, 2, 4],
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 256,
            },
        },
    ),
)
