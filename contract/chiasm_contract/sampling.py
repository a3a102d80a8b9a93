"""How tokens are chosen and when an answer ends, as it travels from the sidecar to the worker.

The names are OpenAI's, and vLLM's where OpenAI has none. The limits stand here once: the front
door refuses what is outside them by the field's name, and nothing outside them crosses.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MAX_CHOICES = 128
MAX_TEMPERATURE = 2.0
MAX_PENALTY = 2.0
# Beyond these a product with a logit could leave the range of numbers.
MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 0.01, 100.0
MAX_BIAS = 100.0
MAX_BIASED_TOKENS = 1024
MAX_STOP_STRINGS = 4
MAX_STOP_STRING_CHARS = 1000
MAX_STOP_TOKENS = 64
MAX_LOGPROBS = 20
MAX_TOKENS = 2**31 - 1

TokenId = Annotated[int, Field(ge=0, le=MAX_TOKENS)]
Bias = Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]


class Sampling(BaseModel):
    """One request's wishes. `temperature` 0 is greedy."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    n: int = Field(default=1, ge=1, le=MAX_CHOICES, description="Answers to the one prompt")
    temperature: float = Field(default=1.0, ge=0, le=MAX_TEMPERATURE)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0, description="0: no limit")
    min_p: float = Field(default=0.0, ge=0, le=1)
    presence_penalty: float = Field(default=0.0, ge=-MAX_PENALTY, le=MAX_PENALTY)
    frequency_penalty: float = Field(default=0.0, ge=-MAX_PENALTY, le=MAX_PENALTY)
    repetition_penalty: float = Field(
        default=1.0, ge=MIN_REPETITION_PENALTY, le=MAX_REPETITION_PENALTY
    )
    logit_bias: dict[TokenId, Bias] = Field(default={}, max_length=MAX_BIASED_TOKENS)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    max_tokens: int | None = Field(default=None, ge=1, description="None: up to max_model_len")
    min_tokens: int = Field(default=0, ge=0)
    ignore_eos: bool = False
    stop: tuple[str, ...] = Field(default=(), max_length=MAX_STOP_STRINGS)
    stop_token_ids: tuple[TokenId, ...] = Field(default=(), max_length=MAX_STOP_TOKENS)
    include_stop_str_in_output: bool = False
    logprobs: int | None = Field(
        default=None,
        ge=0,
        le=MAX_LOGPROBS,
        description="Alternatives reported beside each chosen token",
    )
