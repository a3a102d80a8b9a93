"""Tiny Qwen2-VL, Qwen2.5-VL and Qwen3-VL models."""

from __future__ import annotations

from typing import Any

import transformers as tf

from chiasm_worker.models.tiny.base import TinyModel, text_config, tokenizer

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% for c in m.content %}{% if c.type == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif c.type == 'video' %}"
    "<|vision_start|><|video_pad|><|vision_end|>{% else %}{{ c.text }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)


def _tokenizer() -> tuple[Any, dict[str, int]]:
    made, ids = tokenizer(_TOKENS, eos="<|im_end|>")
    made.pad_token = "<|endoftext|>"  # noqa: S105 - no password
    return made, {
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
    }


def _mrope(sections: list[int], **more: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": sections, **more}


def _processor(processor_class: Any, video_class: Any, tokens: Any, patch_size: int) -> Any:
    size = {"shortest_edge": 56 * 56, "longest_edge": 224 * 224}
    frames = {"shortest_edge": 4 * 56 * 56, "longest_edge": 8 * 112 * 112}
    return processor_class(
        image_processor=tf.Qwen2VLImageProcessor(patch_size=patch_size, size=size),
        tokenizer=tokens,
        video_processor=video_class(patch_size=patch_size, size=frames),
        chat_template=TEMPLATE,
    )


def _qwen3(tiny: TinyModel) -> tuple[Any, Any, Any]:
    tokens, ids = _tokenizer()
    text = {
        **text_config(head_dim=16, rope_parameters=_mrope([4, 2, 2], mrope_interleaved=True)),
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
    config = tf.Qwen3VLConfig(text_config=text, vision_config=vision, **ids, **tiny.top)
    processor = _processor(
        tf.Qwen3VLProcessor, tf.Qwen3VLVideoProcessor, tokens, vision["patch_size"]
    )
    return config, tf.Qwen3VLForConditionalGeneration, processor


def _qwen2_5(tiny: TinyModel) -> tuple[Any, Any, Any]:
    tokens, ids = _tokenizer()
    text = {**text_config(rope_parameters=_mrope([2, 3, 3])), **tiny.text}
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
    config = tf.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **ids, **tiny.top)
    processor = _processor(
        tf.Qwen2_5_VLProcessor, tf.Qwen2VLVideoProcessor, tokens, vision["patch_size"]
    )
    return config, tf.Qwen2_5_VLForConditionalGeneration, processor


def _qwen2(tiny: TinyModel) -> tuple[Any, Any, Any]:
    tokens, ids = _tokenizer()
    text = {**text_config(rope_parameters=_mrope([2, 3, 3])), **tiny.text}
    vision = {
        "depth": 2,
        "embed_dim": 32,
        "num_heads": 2,
        "patch_size": 14,
        "hidden_size": text["hidden_size"],
        "mlp_ratio": 2,
        **tiny.vision,
    }
    config = tf.Qwen2VLConfig(text_config=text, vision_config=vision, **ids, **tiny.top)
    processor = _processor(
        tf.Qwen2VLProcessor, tf.Qwen2VLVideoProcessor, tokens, vision["patch_size"]
    )
    return config, tf.Qwen2VLForConditionalGeneration, processor


MODELS: tuple[TinyModel, ...] = (
    TinyModel("qwen3-grouped", "qwen3-vl", _qwen3),
    TinyModel(
        "qwen3-tied-bias",
        "qwen3-vl",
        _qwen3,
        text={"num_key_value_heads": 4, "attention_bias": True, "head_dim": 24},
        vision={"deepstack_visual_indexes": [0], "patch_size": 14, "depth": 2},
        top={"tie_word_embeddings": True},
    ),
    TinyModel(
        "qwen3-yarn",
        "qwen3-vl",
        _qwen3,
        text={
            "rope_parameters": _mrope(
                [4, 2, 2],
                mrope_interleaved=True,
                rope_type="yarn",
                factor=4.0,
                original_max_position_embeddings=512,
            ),
        },
    ),
    TinyModel("qwen2.5-grouped", "qwen2.5-vl", _qwen2_5),
    TinyModel(
        "qwen2.5-window",
        "qwen2.5-vl",
        _qwen2_5,
        text={"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1},
    ),
    TinyModel("qwen2-grouped", "qwen2-vl", _qwen2),
)
