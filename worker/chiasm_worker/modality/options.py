"""The options with which transformers' processors are really called.

They come from the processor's class, from its own settings and from `tokenizer_config.json`, whose
entries go to every part that knows one of that name. So a tokenizer may change pixels: whoever says
what a processor computes must say these, too.

Must not know: media, prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chiasm_contract.config import MediaKind

ProcessorOptions = Mapping[MediaKind, Mapping[str, Any]]


def resolved_options(processor: Any) -> ProcessorOptions:
    """By kind of media what its processor is called with, resolved as in transformers' own call."""
    options = processor._merge_kwargs(
        tokenizer_init_kwargs=processor.tokenizer.init_kwargs, return_tensors="pt"
    )
    return {
        "image": options["images_kwargs"],
        "video": options["videos_kwargs"],
        "audio": options["audio_kwargs"],
    }
