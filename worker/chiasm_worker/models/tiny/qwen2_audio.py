"""Tiny Qwen2-Audio models."""

from __future__ import annotations

from typing import Any

import transformers as tf

from chiasm_worker.models.tiny.base import TinyModel, text_config, tokenizer

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% for c in m.content %}{% if c.type == 'audio' %}Audio: <|audio_bos|><|AUDIO|><|audio_eos|>\n"
    "{% else %}{{ c.text }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TOKENS = ("<|im_start|>", "<|im_end|>", "<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>")
_SECONDS = 2


def _qwen2_audio(tiny: TinyModel) -> tuple[Any, Any, Any]:
    tokens, ids = tokenizer(_TOKENS, eos="<|im_end|>")
    tower = {
        "num_mel_bins": 20,
        "encoder_layers": 2,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
        "d_model": 32,
        # Two strides: 100 spectra a second, 50 positions.
        "max_source_positions": 50 * _SECONDS,
        **tiny.vision,
    }
    config = tf.Qwen2AudioConfig(
        text_config={"model_type": "qwen2", **text_config(), **tiny.text},
        audio_config=tower,
        audio_token_index=ids["<|AUDIO|>"],
        **tiny.top,
    )
    extractor = tf.WhisperFeatureExtractor(feature_size=20, chunk_length=_SECONDS)
    processor = tf.Qwen2AudioProcessor(extractor, tokens, chat_template=TEMPLATE)
    return config, tf.Qwen2AudioForConditionalGeneration, processor


MODELS: tuple[TinyModel, ...] = (
    TinyModel("qwen2-audio", "qwen2-audio", _qwen2_audio),
    TinyModel(
        "qwen2-audio-ungrouped", "qwen2-audio", _qwen2_audio, text={"num_key_value_heads": 4}
    ),
)
