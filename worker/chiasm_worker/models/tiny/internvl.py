"""Tiny InternVL models."""

from __future__ import annotations

from typing import Any

import transformers as tf

from chiasm_worker.models.tiny.base import TinyModel, text_config, tokenizer, tower_config

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% for c in m.content %}{% if c.type == 'image' %}<IMG_CONTEXT>\n"
    "{% else %}{{ c.text }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_NAMED = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}
_TOKENS = ("<|im_start|>", "<|im_end|>", *_NAMED.values())


def _internvl(tiny: TinyModel) -> tuple[Any, Any, Any]:
    tokens, ids = tokenizer(_TOKENS, eos="<|im_end|>", **_NAMED)
    vision = {**tower_config(), **tiny.vision}
    side = vision["image_size"]
    vision |= {"image_size": [side, side], "patch_size": [vision["patch_size"]] * 2}
    per_tile = (side // vision["patch_size"][0] // 2) ** 2
    config = tf.InternVLConfig(
        text_config={"model_type": "qwen2", **text_config(), **tiny.text},
        vision_config=vision,
        image_token_id=ids["<IMG_CONTEXT>"],
        image_seq_length=per_tile,
        **tiny.top,
    )
    size = {"height": side, "width": side}
    processor = tf.InternVLProcessor(
        image_processor=tf.GotOcr2ImageProcessor(size=size, min_patches=1, max_patches=6),
        tokenizer=tokens,
        video_processor=tf.InternVLVideoProcessor(size=size),
        image_seq_length=per_tile,
        chat_template=TEMPLATE,
    )
    return config, tf.InternVLForConditionalGeneration, processor


MODELS: tuple[TinyModel, ...] = (
    TinyModel("internvl-qwen2", "internvl", _internvl),
    TinyModel(
        "internvl-qwen3-norm",
        "internvl",
        _internvl,
        text={"model_type": "qwen3", "head_dim": 16},
        vision={"use_qk_norm": True, "attention_bias": True},
    ),
)
