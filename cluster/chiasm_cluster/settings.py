"""Where this machine lets us keep files: the only module that reads the environment."""

from __future__ import annotations

from pathlib import Path

from pydantic_settings import BaseSettings


class Settings(BaseSettings):
    """Values of the environment that have nothing to do with any one cluster."""

    xdg_cache_home: Path | None = None
    home: Path = Path("/root")

    @property
    def cache_dir(self) -> Path:
        """Everything that may be deleted at any time and is only costly to make again."""
        return (self.xdg_cache_home or self.home / ".cache") / "chiasm"
