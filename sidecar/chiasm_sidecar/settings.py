"""What the sidecar takes from its environment: only what is no part of a resource's spec."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """CHIASM_LOG_LEVEL and CHIASM_DRAIN_SECONDS."""

    model_config = SettingsConfigDict(env_prefix="CHIASM_", frozen=True)

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    drain_seconds: float = Field(
        default=2.0,
        ge=0,
        le=300,
        description="After SIGTERM, how long new requests are still taken while /ready says no.",
    )
