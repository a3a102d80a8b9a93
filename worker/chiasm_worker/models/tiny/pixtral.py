"""Tiny Pixtral (under LLaVA's architecture) and Mistral3 models."""

from __future__ import annotations

from typing import Any

import transformers as tf

from chiasm_worker.models.tiny.base import TinyModel, text_config, tokenizer, tower_config

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% for c in m.content %}{{ c.text }}{% endfor %}{{ eos_token }}"
    "{% else %}[INST]{% for c in m.content %}{% if c.type == 'image' %}[IMG]"
    "{% else %}{{ c.text }}{% endif %}{% endfor %}[/INST]{% endif %}{% endfor %}"
)
_TOKENS = ("<s>", "</s>", "[INST]", "[/INST]", "[IMG]", "[IMG_BREAK]", "[IMG_END]")


def _parts(tiny: TinyModel, merge: int) -> tuple[dict[str, Any], Any]:
    tokens, ids = tokenizer(_TOKENS, bos="<s>", eos="</s>")
    vision = {"model_type": "pixtral", **tower_config(image_size=112), **tiny.vision}
    vision["head_dim"] = vision["hidden_size"] // vision["num_attention_heads"]
    config = {
        "text_config": {"model_type": "mistral", **text_config(head_dim=16), **tiny.text},
        "vision_config": vision,
        "image_token_index": ids["[IMG]"],
        **tiny.top,
    }
    processor = tf.PixtralProcessor(
        image_processor=tf.PixtralImageProcessor(
            size={"longest_edge": vision["image_size"]},
            patch_size={"height": vision["patch_size"], "width": vision["patch_size"]},
        ),
        tokenizer=tokens,
        patch_size=vision["patch_size"],
        spatial_merge_size=merge,
        chat_template=TEMPLATE,
    )
    return config, processor


def _pixtral(tiny: TinyModel) -> tuple[Any, Any, Any]:
    config, processor = _parts(tiny, merge=1)
    selection = {"vision_feature_select_strategy": "full", "vision_feature_layer": -1}
    return tf.LlavaConfig(**config, **selection), tf.LlavaForConditionalGeneration, processor


def _mistral3(tiny: TinyModel) -> tuple[Any, Any, Any]:
    config, processor = _parts(tiny, merge=2)
    made = tf.Mistral3Config(**config, spatial_merge_size=2)
    return made, tf.Mistral3ForConditionalGeneration, processor


MODELS: tuple[TinyModel, ...] = (
    TinyModel("pixtral", "llava", _pixtral, text={"sliding_window": None}),
    TinyModel("mistral3", "mistral3", _mistral3, text={"sliding_window": None}),
    TinyModel(
        "mistral3-window",
        "mistral3",
        _mistral3,
        text={"sliding_window": 20},
        vision={"patch_size": 8, "image_size": 64},
    ),
)
