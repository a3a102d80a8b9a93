"""`spec.engine`: the budgets of one replica's engine.

What each of them bounds is said once more, resolved, in chiasm_contract/config.py (EngineLimits).
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from chiasm_contract.api.fields import ApiModel, Quantity, at_least, rule, rules


class Engine(ApiModel):
    """The engine's budgets, per replica."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "self.maxModelLen >= self.blockSize",
                "must be at least blockSize",
                field=".maxModelLen",
            )
        )
    )

    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        default="float32", description="Type of weights, activations and cached vectors."
    )
    kernels: Literal["auto", "torch", "triton"] = Field(
        default="auto",
        description="Who computes attention and the operations around it: auto takes Triton "
        "kernels on the GPUs that they are proved for and torch elsewhere; torch never takes "
        "them; triton starts nothing where they cannot compute, and says why.",
    )
    block_size: int = Field(
        default=16,
        description="Tokens in one cache block.",
        json_schema_extra={"enum": [8, 16, 32, 64]},
    )
    kv_cache_bytes: Quantity = Field(
        default="256Mi",
        description="Memory of the cache; it is allocated at start.",
        json_schema_extra=at_least("1Mi"),
    )
    max_model_len: int = Field(
        default=2048,
        ge=16,
        le=2**20,
        description="Prompt and answer together, in tokens. A model made for fewer keeps its own "
        "limit; `/v1/models` says which holds.",
    )
    max_num_seqs: int = Field(
        default=16, ge=1, le=4096, description="Requests that are computed at the same time."
    )
    max_num_batched_tokens: int = Field(
        default=512, ge=1, le=2**20, description="Tokens computed in one step."
    )
    max_num_encoder_tokens: int = Field(
        default=1024,
        ge=1,
        le=2**20,
        description="Tokens that the vision encoder makes in one step, so that many new pictures "
        "do not hold up running answers; one picture with more is encoded by itself.",
    )
    max_media_bytes: Quantity = Field(
        default="1Gi",
        description="Memory that the prepared pictures, videos and sounds of all requests may "
        "take; the next request that brings some is answered 429.",
        json_schema_extra=at_least("1Mi"),
    )
    max_waiting_requests: int = Field(
        default=64,
        ge=1,
        le=65536,
        description="Requests that may wait; the next one is answered 429.",
    )
    prefix_caching: bool = Field(
        default=True, description="Reuse what was computed for equal beginnings and pictures."
    )
    num_threads: int = Field(
        default=0, ge=0, le=1024, description="Threads on a CPU; 0 lets the worker choose."
    )
