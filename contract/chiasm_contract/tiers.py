"""Where cache blocks go beyond the worker's own memory, resolved: what each part is told.

The worker knows the block service's socket and nothing else: no path of a tier, no address, no
credential. Sizes are bytes, times are seconds, and the names say so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from chiasm_contract import names

RecordKindName = Literal["text_kv", "media_kv", "cross_kv", "encoder_output"]
EVERY_KIND: tuple[RecordKindName, ...] = get_args(RecordKindName)
KindSet = Annotated[
    tuple[RecordKindName, ...],
    Field(min_length=1, description="The kinds of records that go to this tier."),
]
Digits16 = r"[0-9a-f]{16}"
PEER_LANDING_BYTES = 64 * 2**20
NAMESPACE_PREFIX = f"^{Digits16}(-{Digits16}){{0,2}}$"
"""The first 16 digits of compute_fp, of repr_fp and of scope_fp, or the beginning of that."""


def begins(name: str, prefix: str) -> bool:
    """Whether a namespace is the one, or one of those, that a prefix names."""
    return name == prefix or name.startswith(f"{prefix}-")


def release_prefix(compute_fp: str, repr_fp: str) -> str:
    """What the names of all namespaces begin with that one model and configuration use."""
    return f"{compute_fp[:16]}-{repr_fp[:16]}"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DiskTier(_Frozen):
    """A folder of records, bounded; what it holds is found again after a restart."""

    path: Path
    max_bytes: int = Field(ge=2**20)
    kinds: KindSet = EVERY_KIND


class ValkeyTier(_Frozen):
    """A Valkey (or Redis 7) that replicas share."""

    host: str = Field(min_length=1)
    port: int = Field(default=6379, ge=1, le=65535)
    tls: bool = False
    ca_path: Path | None = Field(default=None, description="None: the system's authorities.")
    username: str = "default"
    username_path: Path | None = Field(
        default=None, description="A file read together with the password; None: `username`."
    )
    password_path: Path | None = Field(
        default=None, description="A file, read anew when it changed; None: no password."
    )
    certificate_path: Path | None = Field(
        default=None, description="The client's own, PEM; read anew when it changed."
    )
    certificate_key_path: Path | None = Field(default=None, description="Its private key, PEM.")
    key_prefix: str = Field(default="chiasm", pattern=r"^[A-Za-z0-9:_-]{1,64}$")
    max_bytes: int = Field(
        default=10 * 2**30,
        ge=0,
        description="Of all records under the key prefix, whoever wrote them; 0: no bound.",
    )
    ttl_seconds: int = Field(default=86_400, ge=1)
    timeout_seconds: float = Field(default=0.25, gt=0, le=60)
    kinds: KindSet = EVERY_KIND

    @model_validator(mode="after")
    def _nothing_is_ignored(self) -> Self:
        if self.username != "default" and self.password_path is None:
            raise ValueError(f"username {self.username!r} needs password_path")
        if self.username_path is not None and self.password_path is None:
            raise ValueError("username_path needs password_path")
        if (self.certificate_path is None) != (self.certificate_key_path is None):
            raise ValueError("certificate_path and certificate_key_path belong together")
        for name in ("ca_path", "certificate_path"):
            if getattr(self, name) is not None and not self.tls:
                raise ValueError(f"{name} is of no use without tls: true")
        return self


PeerTransport = Literal["stream", "nixl"]


class PeerTier(_Frozen):
    """The host memory of other replicas, and ours for them."""

    hosts: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        min_length=1, description="Names or addresses; what they resolve to are the replicas."
    )
    port: int = Field(
        default=names.PEER_PORT, ge=1, le=65535, description="Where replicas ask for records."
    )
    data_port: int = Field(
        default=names.PEER_DATA_PORT,
        ge=0,
        le=65535,
        description="Where NIXL reads them; 0: any.",
    )
    listen_host: str | None = Field(default=None, description="None: every address.")
    interface: str | None = Field(
        default=None, description="NIXL's network interface; None: that of the default route."
    )
    transport: PeerTransport = Field(
        default="stream",
        description="stream: records come on the connection of `port`; nixl: they are read through "
        "`data_port`.",
    )
    secret_path: Path = Field(
        description="A file of 32 or more bytes that all replicas share, read anew for each "
        "connection."
    )
    timeout_seconds: float = Field(
        default=0.2, gt=0, le=60, description="For a look-up at one replica, and for each read."
    )
    landing_bytes: int = Field(
        default=PEER_LANDING_BYTES, ge=2**20, description="Memory that records are read into."
    )
    refresh_seconds: float = Field(
        default=5.0, gt=0, le=3600, description="How often the names are resolved anew."
    )

    @model_validator(mode="after")
    def _nothing_is_ignored(self) -> Self:
        of_nixl = self.data_port != names.PEER_DATA_PORT or self.interface is not None
        if of_nixl and self.transport != "nixl":
            raise ValueError("data_port and interface are of no use without transport: nixl")
        return self


class BlockTiers(_Frozen):
    """The sidecar's side: the service and the tiers behind it, nearest first.

    A resource offers all but `fetch_timeout_seconds` and `write_queue_bytes`. The first is an upper
    bound of what a request may lose to tiers that do not answer, and the second of what a slow tier
    costs the sidecar in memory; tiers that answer are not touched by either.
    """

    socket_path: Path = Path(names.KV_SOCKET)
    staging_path: Path = Path(names.KV_STAGING)
    staging_bytes: int = Field(default=64 * 2**20, ge=2**20)
    host_bytes: int = Field(default=0, ge=0, description="0: no tier in the host's memory.")
    disk: DiskTier | None = None
    peers: PeerTier | None = None
    valkey: ValkeyTier | None = None
    fetch_timeout_seconds: float = Field(
        default=0.5,
        gt=0,
        le=60,
        description="What the tiers have not given after that is computed again.",
    )
    write_queue_bytes: int = Field(
        default=64 * 2**20,
        ge=0,
        description="Of records that wait to be written, for each of disk and Valkey.",
    )
    namespace_share: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="How much of each tier's bytes one namespace may take.",
    )
    retired_path: Path | None = Field(
        default=None,
        description="A file of namespaces, or their beginnings, a line each, that are neither read "
        "nor written any more; what they hold is removed for good. Read anew when it changes; "
        "None: there are none.",
    )

    @model_validator(mode="after")
    def _peers_share_memory(self) -> Self:
        if self.peers is not None and not self.host_bytes:
            raise ValueError("peers needs host_bytes: it is that memory which replicas share")
        return self


class BlockService(_Frozen):
    """The worker's side."""

    socket_path: Path = Path(names.KV_SOCKET)
