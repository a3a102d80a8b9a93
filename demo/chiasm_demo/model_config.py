"""The shape of the demo model: Qwen3-VL's architecture, small enough for two cores.

One place for sizes. Knows nothing of training. Invariants: a vision token is 28 x 28 pixels; the
picture sides the model is trained on need no resizing; anything else is resized into that range by
the processor's pixel limits.
"""

from __future__ import annotations

from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from chiasm_demo.tokenizer import IM_END, IMAGE_PAD, VIDEO_PAD, VISION_END, VISION_START

PATCH_PIXELS = 14
MERGE = 2
TOKEN_PIXELS = PATCH_PIXELS * MERGE
HIDDEN = 192
VISION_HIDDEN = 192
VISION_DEPTH = 6
DEEPSTACK_BLOCK = 2
"""The vision block after which half-done features (digits, outlines) leave for the decoder."""

MIN_PIXELS = 112 * 112
MAX_PIXELS = 224 * 224
IMAGE_MEAN = (0.5, 0.5, 0.5)
IMAGE_STD = (0.5, 0.5, 0.5)
MAX_NEW_TOKENS = 128


def build_config(tokenizer: PreTrainedTokenizerFast) -> Qwen3VLConfig:
    """The architecture for this vocabulary: about 5 million parameters."""

    def token_id(token: str) -> int:
        return int(tokenizer.convert_tokens_to_ids(token))

    return Qwen3VLConfig(
        architectures=["Qwen3VLForConditionalGeneration"],
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": HIDDEN,
            "intermediate_size": 512,
            "num_hidden_layers": 4,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "max_position_embeddings": 1024,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
            "tie_word_embeddings": True,
            "eos_token_id": token_id(IM_END),
            "pad_token_id": tokenizer.pad_token_id,
            "dtype": "float32",
        },
        vision_config={
            "depth": VISION_DEPTH,
            "hidden_size": VISION_HIDDEN,
            "intermediate_size": 512,
            "num_heads": 6,
            "patch_size": PATCH_PIXELS,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
            "out_hidden_size": HIDDEN,
            "num_position_embeddings": 16 * 16,
            "deepstack_visual_indexes": [DEEPSTACK_BLOCK],
            "dtype": "float32",
        },
        image_token_id=token_id(IMAGE_PAD),
        video_token_id=token_id(VIDEO_PAD),
        vision_start_token_id=token_id(VISION_START),
        vision_end_token_id=token_id(VISION_END),
        tie_word_embeddings=True,
        dtype="float32",
    )


def build_processor(tokenizer: PreTrainedTokenizerFast) -> Qwen3VLProcessor:
    """Pixels and words in, model inputs out: resizes any picture into the trained range."""
    pixels = {
        "patch_size": PATCH_PIXELS,
        "merge_size": MERGE,
        "temporal_patch_size": 2,
        "image_mean": list(IMAGE_MEAN),
        "image_std": list(IMAGE_STD),
        "size": {"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS},
    }
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**pixels),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**pixels),
        chat_template=tokenizer.chat_template,
    )


def build_generation_config(tokenizer: PreTrainedTokenizerFast) -> GenerationConfig:
    """Greedy answers that end with the turn."""
    return GenerationConfig(
        do_sample=False,
        max_new_tokens=MAX_NEW_TOKENS,
        eos_token_id=tokenizer.convert_tokens_to_ids(IM_END),
        pad_token_id=tokenizer.pad_token_id,
    )
