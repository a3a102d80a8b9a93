"""What the worker takes from its environment: only what is no part of a model's specification."""

from __future__ import annotations

import os
from typing import Literal

from pydantic_settings import BaseSettings, SettingsConfigDict


class WorkerSettings(BaseSettings):
    """CHIASM_LOG_LEVEL."""

    model_config = SettingsConfigDict(env_prefix="CHIASM_", frozen=True)

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"


def shorten_spinning() -> None:
    """Tell OpenMP how often a thread looks for new work before it sleeps, if nobody has.

    libgomp reads it when torch is loaded, so this comes before any import of torch. Its own 300,000
    keep a thread up to 14 ms on the very core that the one it waits for may need; the gaps of a
    step are below .1 ms, which 2,000 are. On two shared cores a first token after a pause took .06 s
    instead of .14 with 30,000, and eight streams gained a third.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
