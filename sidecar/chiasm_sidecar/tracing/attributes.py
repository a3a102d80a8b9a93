"""What spans say of a request: OpenTelemetry's names for generative models, ours for media.

https://opentelemetry.io/docs/specs/semconv/gen-ai/ . Numbers, names and identifiers only: what a
client asked, showed or was told is in none of them, and neither are stop strings, which are his
words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chiasm_contract.config import MediaKind
from chiasm_contract.messages import MEDIA_NAMES, Usage
from chiasm_contract.sampling import Sampling

OPERATION = "chat"
ROUTE = "/v1/chat/completions"
Attributes = dict[str, Any]

# Fields of Sampling that have the same meaning there.
_SAMPLING = (
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "presence_penalty",
    "frequency_penalty",
)


def of_begin(model_id: str) -> Attributes:
    """What is known before the body is read."""
    return {
        "gen_ai.operation.name": OPERATION,
        "gen_ai.provider.name": "chiasm",
        "gen_ai.request.model": model_id,
        "http.request.method": "POST",
        "http.route": ROUTE,
    }


def of_request(
    sampling: Sampling, modality: str, files: Mapping[MediaKind, Sequence[int]], *, stream: bool
) -> Attributes:
    """What was asked for; `files` are the sizes of each kind, in bytes."""
    found: Attributes = {
        "gen_ai.output.type": "text",
        "gen_ai.request.stream": stream,
        "gen_ai.request.choice.count": sampling.n,
        "chiasm.media.modality": modality,
    }
    for name in _SAMPLING:
        value = getattr(sampling, name)
        if value is not None:
            found[f"gen_ai.request.{name}"] = value
    for kind, sizes in files.items():
        if sizes:
            found[f"chiasm.media.{kind}.items"] = len(sizes)
            found[f"chiasm.media.{kind}.bytes"] = sum(sizes)
    return found


def of_answer(answer_id: str, model_id: str, usage: Usage, reasons: Sequence[str]) -> Attributes:
    """What it took."""
    found: Attributes = {
        "gen_ai.response.id": answer_id,
        "gen_ai.response.model": model_id,
        "gen_ai.response.finish_reasons": list(reasons),
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
    }
    for kind in MEDIA_NAMES:
        tokens = getattr(usage, f"{kind}_tokens")
        if tokens:
            found[f"chiasm.media.{kind}.tokens"] = tokens
    if usage.image_compression:
        found["chiasm.media.image.compression"] = list(usage.image_compression)
        found["chiasm.media.image.uncompressed_tokens"] = usage.uncompressed_image_tokens
    return found
