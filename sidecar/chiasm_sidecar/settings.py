"""What the sidecar takes from its environment: only what is no part of a resource's spec."""

from __future__ import annotations

from typing import Literal

from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """CHIASM_LOG_LEVEL."""

    model_config = SettingsConfigDict(env_prefix="CHIASM_", frozen=True)

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
