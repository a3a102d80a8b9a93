"""Where a sidecar finds the API keys of its tenants. Paths only: no key is ever configuration."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class TenantKeys(BaseModel):
    """The mounted Secrets; both are read anew when they change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys_path: Path = Field(
        description="A folder with a file for each tenant, or one file of NAME=KEY lines."
    )
    server_key_path: Path = Field(description="A file; its content turns names into scopes.")
    required: bool = Field(default=True, description="Whether a request without key is refused.")
