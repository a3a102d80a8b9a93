"""How tokens are chosen and when an answer ends, as it travels from the sidecar to the worker.

The names are OpenAI's, and vLLM's where OpenAI has none. The limits stand here once, as types: the
front door refuses what is outside them by the field's name, and nothing outside them crosses.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

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
NumChoices = Annotated[int, Field(ge=1, le=MAX_CHOICES)]
Temperature = Annotated[float, Field(ge=0, le=MAX_TEMPERATURE)]
TopP = Annotated[float, Field(gt=0, le=1)]
MinP = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-MAX_PENALTY, le=MAX_PENALTY)]
RepetitionPenalty = Annotated[float, Field(ge=MIN_REPETITION_PENALTY, le=MAX_REPETITION_PENALTY)]
Seed = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
MaxTokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
MinTokens = Annotated[int, Field(ge=0, le=MAX_TOKENS)]
StopString = Annotated[str, StringConstraints(min_length=1, max_length=MAX_STOP_STRING_CHARS)]
NumLogprobs = Annotated[int, Field(ge=0, le=MAX_LOGPROBS)]


class Sampling(BaseModel):
    """One request's wishes. `temperature` 0 is greedy."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    n: NumChoices = Field(default=1, description="Answers to the one prompt")
    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    top_k: int = Field(default=0, ge=0, le=MAX_TOKENS, description="0: no limit")
    min_p: MinP = 0.0
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    repetition_penalty: RepetitionPenalty = 1.0
    logit_bias: dict[TokenId, Bias] = Field(default={}, max_length=MAX_BIASED_TOKENS)
    seed: Seed | None = None
    max_tokens: MaxTokens | None = Field(default=None, description="None: up to max_model_len")
    min_tokens: MinTokens = 0
    ignore_eos: bool = False
    stop: tuple[StopString, ...] = Field(default=(), max_length=MAX_STOP_STRINGS)
    stop_token_ids: tuple[TokenId, ...] = Field(default=(), max_length=MAX_STOP_TOKENS)
    include_stop_str_in_output: bool = False
    logprobs: NumLogprobs | None = Field(
        default=None, description="Alternatives reported beside each chosen token"
    )
