"""Where cache blocks go beyond the worker's own memory, resolved: what each part is told.

The worker knows the block service's socket and nothing else: no path of a tier, no address, no
credential. Sizes are bytes, times are seconds, and the names say so.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from chiasm_contract import names


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DiskTier(_Frozen):
    """A folder of records, bounded; what it holds is found again after a restart."""

    path: Path
    max_bytes: int = Field(ge=2**20)


class ValkeyTier(_Frozen):
    """A Valkey (or Redis 7) that replicas share."""

    host: str = Field(min_length=1)
    port: int = Field(default=6379, ge=1, le=65535)
    tls: bool = False
    ca_path: Path | None = Field(default=None, description="None: the system's authorities.")
    username: str = "default"
    password_path: Path | None = Field(
        default=None, description="A file, read anew when it changed; None: no password."
    )
    key_prefix: str = Field(default="chiasm", pattern=r"^[A-Za-z0-9:_-]{1,64}$")
    ttl_seconds: int = Field(default=86_400, ge=1)
    timeout_seconds: float = Field(default=0.25, gt=0, le=60)


class BlockTiers(_Frozen):
    """The sidecar's side: the service and the tiers behind it, nearest first."""

    socket_path: Path = Path(names.KV_SOCKET)
    staging_path: Path = Path(names.KV_STAGING)
    staging_bytes: int = Field(default=64 * 2**20, ge=2**20)
    host_bytes: int = Field(default=0, ge=0, description="0: no tier in the host's memory.")
    disk: DiskTier | None = None
    valkey: ValkeyTier | None = None


class BlockService(_Frozen):
    """The worker's side."""

    socket_path: Path = Path(names.KV_SOCKET)
