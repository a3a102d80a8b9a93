"""Tiny Gemma 3 and PaliGemma."""

from __future__ import annotations

from typing import Any

import transformers as tf

from chiasm_worker.models.paligemma import CHAT_TEMPLATE
from chiasm_worker.models.tiny.base import TinyModel, text_config, tokenizer, tower_config

GEMMA_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ m.role }}\n"
    "{% for c in m.content %}{% if c.type == 'image' %}<start_of_image>{% else %}{{ c.text }}"
    "{% endif %}{% endfor %}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
_IMAGE = {"image_token": "<image>"}
_TOKENS = (
    "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>",
    "<start_of_image>", "<end_of_image>", "<image_soft_token>",
)  # fmt: skip
_NAMED = {
    "boi_token": "<start_of_image>",
    "eoi_token": "<end_of_image>",
    "image_token": "<image_soft_token>",
}


def _gemma3(tiny: TinyModel) -> tuple[Any, Any, Any]:
    fast, ids = tokenizer(
        _TOKENS,
        eos="<end_of_turn>",
        bos="<bos>",
        **_NAMED,
    )
    vision = {**tower_config(model_type="siglip_vision_model"), **tiny.vision}
    num_tokens = 16
    text = {
        **text_config(
            head_dim=16,
            num_hidden_layers=4,
            query_pre_attn_scalar=24,
            sliding_window=16,
            sliding_window_pattern=2,
        ),
        **tiny.text,
    }
    config = tf.Gemma3Config(
        text_config=text,
        vision_config=vision,
        mm_tokens_per_image=num_tokens,
        boi_token_index=ids["<start_of_image>"],
        eoi_token_index=ids["<end_of_image>"],
        image_token_index=ids["<image_soft_token>"],
        **tiny.top,
    )
    side = {"height": vision["image_size"], "width": vision["image_size"]}
    processor = tf.Gemma3Processor(
        image_processor=tf.Gemma3ImageProcessor(size=side),
        tokenizer=fast,
        image_seq_length=num_tokens,
        chat_template=GEMMA_TEMPLATE,
    )
    return config, tf.Gemma3ForConditionalGeneration, processor


def _paligemma(tiny: TinyModel) -> tuple[Any, Any, Any]:
    fast, ids = tokenizer(("<bos>", "<eos>", "<image>"), eos="<eos>", bos="<bos>", **_IMAGE)
    vision = {**tower_config(model_type="siglip_vision_model"), **tiny.vision}
    vision["vision_use_head"] = False
    # The processor adds 1,152 tokens for places and segments to the tokenizer.
    text = {**text_config(head_dim=16, vocab_size=1536), **tiny.text}
    config = tf.PaliGemmaConfig(
        text_config=text,
        vision_config=vision,
        image_token_index=ids["<image>"],
        projection_dim=text["hidden_size"],
        hidden_size=text["hidden_size"],
        **tiny.top,
    )
    side = {"height": vision["image_size"], "width": vision["image_size"]}
    pictures = tf.SiglipImageProcessor(size=side)
    pictures.image_seq_length = (vision["image_size"] // vision["patch_size"]) ** 2
    processor = tf.PaliGemmaProcessor(
        image_processor=pictures, tokenizer=fast, chat_template=CHAT_TEMPLATE
    )
    return config, tf.PaliGemmaForConditionalGeneration, processor


MODELS = (
    TinyModel("gemma3-tied", "gemma3", _gemma3),
    TinyModel(
        "gemma3-scaled-rope",
        "gemma3",
        _gemma3,
        text={
            "num_key_value_heads": 4,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 50000.0, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
        },
        top={"tie_word_embeddings": False},
    ),
    TinyModel(
        # Narrower than a picture, whose tokens then do not all see its first ones.
        "gemma3-narrow-window",
        "gemma3",
        _gemma3,
        text={"sliding_window": 6, "num_attention_heads": 8},
        top={"tie_word_embeddings": False},
    ),
    TinyModel("paligemma-gemma", "paligemma", _paligemma, text={"model_type": "gemma"}),
    TinyModel(
        "paligemma2-window",
        "paligemma",
        _paligemma,
        text={
            "model_type": "gemma2",
            "num_hidden_layers": 4,
            "query_pre_attn_scalar": 24,
            "sliding_window": 12,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 8.0,
        },
        top={"tie_word_embeddings": False},
    ),
)
