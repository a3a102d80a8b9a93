"""What the engine says of its work: each step's progress, each request's usage, totals.

Must not know: how anything is computed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from chiasm_worker.engine.sampler import SampledToken
from chiasm_worker.request import FinishReason, Request


@dataclass(frozen=True, slots=True)
class RequestUsage:
    """Tokens of one request."""

    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    num_media_tokens: Counter[str]  # by modality
    num_uncompressed_image_tokens: int
    image_compression: tuple[int, ...]

    @classmethod
    def of(cls, request: Request) -> RequestUsage:
        """What a request that ended has used."""
        return cls(
            num_prompt_tokens=request.num_prompt_tokens,
            num_output_tokens=request.num_output_tokens,
            num_cached_tokens=request.num_cached_tokens or 0,
            num_media_tokens=request.prompt.num_media_tokens,
            num_uncompressed_image_tokens=request.prompt.num_uncompressed_image_tokens,
            image_compression=request.prompt.image_compression,
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """What a step brought for one request: a token, an end, or both."""

    request_id: str
    token_id: int | None
    text: str
    # Tokens whose text is now certain, with their log probabilities where asked for.
    shown: tuple[SampledToken, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    usage: RequestUsage | None = None
    failed: bool = False
    choice: int = 0


@dataclass(slots=True)
class EngineTotals:
    """Totals since start."""

    prompt_tokens: int = 0
    image_tokens: Counter[int] = field(default_factory=Counter)  # by compression
    uncompressed_image_tokens: int = 0
    generation_tokens: int = 0
    steps: int = 0
    step_tokens: int = 0
    step_seconds: float = 0.0
    model_seconds: float = 0.0
    aborted: int = 0
    failed: int = 0
