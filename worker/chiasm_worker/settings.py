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
    step are below .1 ms. On two shared cores streams became up to twice as fast. Fewer are better
    for a first token after a pause (2,000: .06 s, 30,000: .14), more for streams beside other load.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
