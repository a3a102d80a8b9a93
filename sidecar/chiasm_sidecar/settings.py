"""What the sidecar takes from its environment: only what is no part of a resource's spec.

docs/reference/settings.md lists the variables; spec.config.environments sets them.
"""

from __future__ import annotations

from typing import Literal

from chiasm_contract.clients import VARIABLE_PREFIX, ClientSettings
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(ClientSettings, BaseSettings):
    """Each field is CHIASM_ and its name in capitals."""

    model_config = SettingsConfigDict(env_prefix=VARIABLE_PREFIX, frozen=True)

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="Least severity that is logged."
    )

    @classmethod
    def load(cls) -> Settings:
        """The settings.

        Raises: SystemExit with a line for each variable that cannot be used.
        """
        try:
            return cls()
        except ValidationError as error:
            lines = [
                f"{VARIABLE_PREFIX}{str(item['loc'][0]).upper()}: {item['msg']}."
                for item in error.errors()
            ]
            raise SystemExit("\n".join(["The sidecar cannot start.", *lines])) from None
