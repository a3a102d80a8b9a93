"""Tiny LLaVA, LLaVA-NeXT and LLaVA-OneVision models."""

from __future__ import annotations

from typing import Any

import transformers as tf

from chiasm_worker.models.tiny.base import TinyModel, text_config, tokenizer, tower_config

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' and m.content|selectattr('type', 'eq', "
    "'image')|list %}{{ raise_exception('no pictures in system messages') }}{% endif %}"
    "{{ m.role.upper() }}: "
    "{% for c in m.content %}{% if c.type == 'text' %}{{ c.text }}{% else %}<{{ c.type }}>\n"
    "{% endif %}{% endfor %} {% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
# A tile's size in pixels, and the shapes that tiles may be laid out in.
_TILE = 56
_PINPOINTS = [[56, 112], [112, 56], [112, 112], [168, 56], [56, 168]]


def _parts(tiny: TinyModel) -> tuple[Any, dict[str, int], dict[str, Any], dict[str, Any]]:
    tokens, ids = tokenizer(("<s>", "</s>", "<image>", "<video>"), bos="<s>", eos="</s>")
    vision = {"model_type": "clip_vision_model", **tower_config(), **tiny.vision}
    text = {"model_type": "llama", **text_config(), **tiny.text}
    return tokens, ids, text, vision


def _selection(tiny: TinyModel, vision: dict[str, Any]) -> dict[str, Any]:
    """What a processor must know of the tower."""
    return {
        "patch_size": vision["patch_size"],
        "vision_feature_select_strategy": tiny.top.get("vision_feature_select_strategy", "default"),
        "num_additional_image_tokens": int(vision["model_type"] == "clip_vision_model"),
        "chat_template": TEMPLATE,
    }


def _llava(tiny: TinyModel) -> tuple[Any, Any, Any]:
    tokens, ids, text, vision = _parts(tiny)
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
        tokenizer=tokens,
        **_selection(tiny, vision),
    )
    return config, tf.LlavaForConditionalGeneration, processor


def _next(tiny: TinyModel) -> tuple[Any, Any, Any]:
    tokens, ids, text, vision = _parts(tiny)
    config = tf.LlavaNextConfig(
        text_config=text,
        vision_config=vision,
        image_token_index=ids["<image>"],
        image_grid_pinpoints=_PINPOINTS,
        **tiny.top,
    )
    processor = tf.LlavaNextProcessor(
        image_processor=tf.LlavaNextImageProcessor(
            size={"shortest_edge": _TILE},
            crop_size={"height": _TILE, "width": _TILE},
            image_grid_pinpoints=_PINPOINTS,
        ),
        tokenizer=tokens,
        **_selection(tiny, vision),
    )
    return config, tf.LlavaNextForConditionalGeneration, processor


def _onevision(tiny: TinyModel) -> tuple[Any, Any, Any]:
    tokens, ids, text, vision = _parts(tiny)
    config = tf.LlavaOnevisionConfig(
        text_config=text,
        vision_config=vision,
        image_token_index=ids["<image>"],
        video_token_index=ids["<video>"],
        image_grid_pinpoints=_PINPOINTS,
        **tiny.top,
    )
    size = {"height": _TILE, "width": _TILE}
    processor = tf.LlavaOnevisionProcessor(
        image_processor=tf.LlavaOnevisionImageProcessor(size=size, image_grid_pinpoints=_PINPOINTS),
        tokenizer=tokens,
        video_processor=tf.LlavaOnevisionVideoProcessor(size=size),
        num_image_tokens=(_TILE // vision["patch_size"]) ** 2,
        vision_feature_select_strategy="full",
        chat_template=TEMPLATE,
        vision_aspect_ratio=config.vision_aspect_ratio,
    )
    return config, tf.LlavaOnevisionForConditionalGeneration, processor


_SIGLIP: dict[str, Any] = {
    "vision": {"model_type": "siglip_vision_model"},
    "top": {"vision_feature_select_strategy": "full", "vision_feature_layer": -1},
}
MODELS: tuple[TinyModel, ...] = (
    TinyModel("llava-clip-llama", "llava", _llava),
    TinyModel("llava-siglip-qwen2", "llava", _llava, text={"model_type": "qwen2"}, **_SIGLIP),
    TinyModel(
        "llava-clip-mistral-window",
        "llava",
        _llava,
        text={
            "model_type": "mistral",
            "sliding_window": 20,
            "num_attention_heads": 6,
            "hidden_size": 96,
        },
        top={"vision_feature_layer": [-1, -2]},
    ),
    TinyModel("llava-clip-qwen3", "llava", _llava, text={"model_type": "qwen3", "head_dim": 32}),
    TinyModel("llava-next-mistral", "llava-next", _next, text={"model_type": "mistral"}),
    TinyModel(
        "llava-next-siglip-qwen2", "llava-next", _next, text={"model_type": "qwen2"}, **_SIGLIP
    ),
    TinyModel(
        "onevision-qwen2", "llava-onevision", _onevision, text={"model_type": "qwen2"}, **_SIGLIP
    ),
    TinyModel(
        "onevision-many-tiles",
        "llava-onevision",
        _onevision,
        text={"model_type": "qwen2", "num_key_value_heads": 4},
        vision=_SIGLIP["vision"],
        top={**_SIGLIP["top"], "vision_aspect_ratio": "anyres_max_1"},
    ),
)
