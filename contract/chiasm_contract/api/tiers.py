"""`spec.tiers`: where cache blocks go beyond the worker's own memory.

Only the sidecar reaches a tier or holds a credential; the worker passes blocks to it. What each
field means is said once more, resolved, in chiasm_contract/tiers.py. Must not know: how blocks are
stored.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints

from chiasm_contract.api.fields import (
    ONE_ORIGIN,
    ApiModel,
    DnsName,
    Quantity,
    SecretEntryName,
    SourceName,
    at_least,
    rule,
    rules,
)
from chiasm_contract.tiers import NAMESPACE_PREFIX, PeerTransport

NamespacePrefix = Annotated[str, StringConstraints(max_length=50, pattern=NAMESPACE_PREFIX)]


class SecretEntry(ApiModel):
    """One entry of a Secret in the resource's namespace, or of a source of the environment."""

    model_config = ConfigDict(json_schema_extra=rules(ONE_ORIGIN))

    name: DnsName | None = Field(default=None, description="Name of the Secret.")
    source: SourceName | None = Field(
        default=None,
        description="Name of a source of the environment in spec.config.environments.",
    )
    key: SecretEntryName = Field(description="Key inside it.")


class HostTier(ApiModel):
    """Blocks in the sidecar's memory: a worker that restarts finds them again."""

    max_bytes: Quantity = Field(
        description="Memory for blocks; the sidecar's own is not counted.",
        json_schema_extra=at_least("1Mi"),
    )


class DiskTier(ApiModel):
    """Blocks on the node's disk, in a volume that lives as long as the pod."""

    max_bytes: Quantity = Field(
        description="Disk for blocks; the oldest and cheapest go first.",
        json_schema_extra=at_least("1Mi"),
    )


class ValkeyTier(ApiModel):
    """Blocks in a Valkey or Redis that all replicas share: a new pod starts warm."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("self.tls || !has(self.caSecret)", "needs tls: true", field=".caSecret"),
            rule(
                "has(self.passwordSecret) || self.username == 'default'",
                "needs passwordSecret",
                field=".username",
            ),
            rule(
                "!has(self.usernameSecret) || (has(self.passwordSecret) "
                "&& self.username == 'default')",
                "needs passwordSecret, and no username beside it",
                field=".usernameSecret",
            ),
            rule(
                "has(self.clientCertificateSecret) == has(self.clientKeySecret) "
                "&& (self.tls || !has(self.clientCertificateSecret))",
                "needs clientKeySecret and tls: true",
                field=".clientCertificateSecret",
            ),
        )
    )

    host: DnsName = Field(description="Name or address, as pods resolve it.")
    port: int = Field(default=6379, ge=1, le=65535, description="TCP port.")
    tls: bool = Field(default=False, description="Speak TLS; without it blocks travel in clear.")
    ca_secret: SecretEntry | None = Field(
        default=None, description="Authority that signed the server's certificate, as PEM."
    )
    username: Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,128}$")] = Field(
        default="default", description="User of the server's access control list."
    )
    username_secret: SecretEntry | None = Field(
        default=None,
        description="The user's name where it changes together with the password, as that of a "
        "lease does.",
    )
    password_secret: SecretEntry | None = Field(
        default=None, description="The user's password; a changed one is used without a restart."
    )
    client_certificate_secret: SecretEntry | None = Field(
        default=None,
        description="The certificate by which the server knows this client, as PEM; a changed one "
        "is used without a restart.",
    )
    client_key_secret: SecretEntry | None = Field(
        default=None, description="The private key of the client's certificate, as PEM."
    )
    max_bytes: Quantity = Field(
        default="10Gi",
        description="Blocks under the key prefix, whoever wrote them; the oldest go first. 0: no "
        "bound but the server's own.",
    )
    key_prefix: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9:_-]{1,64}$")] = Field(
        default="chiasm", description="What all keys begin with."
    )
    ttl_seconds: int = Field(
        default=86_400,
        ge=1,
        le=2_592_000,
        description="A block goes so long after it was last written.",
    )
    timeout_milliseconds: int = Field(
        default=250,
        ge=1,
        le=60_000,
        description="An answer that takes longer is given up, and the block computed again.",
    )


class PeerTier(ApiModel):
    """Blocks in the memory of this resource's other pods; they travel in clear."""

    transport: PeerTransport = Field(
        default="stream",
        description="How blocks come. stream: on one TCP connection of pods that have proved to "
        "know the secret. nixl: by NIXL through a port that asks nobody who he is, so only in "
        "networks where other pods of the resource alone reach it; for hardware with RDMA.",
    )
    secret: SecretEntry = Field(
        description="32 or more random bytes that pods know each other by; changed ones are used "
        "without a restart."
    )
    timeout_milliseconds: int = Field(
        default=200,
        ge=1,
        le=60_000,
        description="A pod that takes longer is given up, and the block computed again.",
    )


class Tiers(ApiModel):
    """Where cache blocks go beyond the worker's own memory; nearest first.

    Without engine.prefixCaching only what the vision encoder made is kept.
    """

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.host) || has(self.disk) || has(self.valkey)",
                "set at least one of host, disk and valkey",
            ),
            rule("!has(self.peers) || has(self.host)", "needs host", field=".peers"),
        )
    )

    staging_bytes: Quantity = Field(
        default="64Mi",
        description="Shared memory through which blocks pass between worker and sidecar; half of "
        "it each way.",
        json_schema_extra=at_least("1Mi"),
    )
    host: HostTier | None = None
    disk: DiskTier | None = None
    peers: PeerTier | None = None
    valkey: ValkeyTier | None = None
    max_namespace_percent: int = Field(
        default=100,
        ge=1,
        le=100,
        description="How much of each tier one namespace may take: the blocks that one model and "
        "configuration made for one tenant.",
    )
    retired_namespaces: tuple[NamespacePrefix, ...] = Field(
        default=(),
        max_length=256,
        description="Namespaces, or their beginnings, that are neither read nor written any more. "
        "What tiers hold of them is removed for good, whoever writes later; taking an entry out "
        "brings nothing back. Running pods hear of it, none is restarted. The first 16 hex digits "
        "of a compute_fp name all that one model made.",
    )
