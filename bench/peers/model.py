"""A random Qwen2.5-VL of 107M parameters: large enough that weights, not Python, set the pace.

Its tokenizer and chat template are the demo model's; ids beyond the tokenizer's vocabulary decode
to nothing, which costs every contestant the same. It has no end token, so every answer has exactly
the tokens that were asked for.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image

DEMO_MODEL = Path(__file__).resolve().parents[2] / "demo" / "model"
SIDE_PIXELS = 336
"""576 patches of 14 pixels, 144 tokens of the language model."""


def write_model(folder: Path, seed: int) -> int:
    """Write the model to `folder`; how many parameters it has."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(DEMO_MODEL)
    config = transformers.Qwen2_5_VLConfig(
        text_config={
            "vocab_size": 16_384,
            "hidden_size": 640,
            "intermediate_size": 1792,
            "num_hidden_layers": 12,
            "num_attention_heads": 10,
            "num_key_value_heads": 2,
            "max_position_embeddings": 4096,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1_000_000.0,
                "mrope_section": [8, 12, 12],
            },
        },
        vision_config={
            "depth": 8,
            "hidden_size": 512,
            "intermediate_size": 1408,
            "num_heads": 8,
            "out_hidden_size": 640,
            "fullatt_block_indexes": [3, 7],
        },
        image_token_id=tokenizer.convert_tokens_to_ids("<|image_pad|>"),
        video_token_id=tokenizer.convert_tokens_to_ids("<|video_pad|>"),
        vision_start_token_id=tokenizer.convert_tokens_to_ids("<|vision_start|>"),
        vision_end_token_id=tokenizer.convert_tokens_to_ids("<|vision_end|>"),
    )
    torch.manual_seed(seed)
    model = transformers.Qwen2_5_VLForConditionalGeneration(config).to(torch.bfloat16)
    model.generation_config = transformers.GenerationConfig(pad_token_id=tokenizer.pad_token_id)
    processor = transformers.Qwen2_5_VLProcessor(
        image_processor=transformers.Qwen2VLImageProcessor(patch_size=14),
        tokenizer=tokenizer,
        video_processor=transformers.Qwen2VLVideoProcessor(patch_size=14),
        chat_template=(DEMO_MODEL / "chat_template.jinja").read_text(),
    )
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def write_picture(path: Path, rng: random.Random) -> Path:
    """A picture that nobody has seen, as PNG: smooth colours, so that files are small."""
    coarse = np.random.default_rng(rng.getrandbits(32)).integers(0, 256, (7, 7, 3), dtype=np.uint8)
    side = (SIDE_PIXELS, SIDE_PIXELS)
    Image.fromarray(coarse).resize(side, Image.Resampling.BILINEAR).save(path)
    return path
