"""Configuration and secrets of a pod: where the sidecar finds them, what the operator allows, and
what the sidecar says of them.

    delivery (mounted, rendered by an agent, or asked of the server)
        -> offer: what is there now      -> proof: used once, really
        -> current: CURRENT/<source>/    what the parts of the sidecar read

A value that every pod gets alike is taken by one pod first, and by the others when the operator
allows it; a lease is each pod's own. What is in use stays in use until something better is proved.

Ids of values are compared between pods and never tell the value: they are keyed digests, versions
of a kv secret and when they were made, or numbers of a lease that only its pod knows.

Must not know: Kubernetes objects, clocks, HTTP.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from chiasm_contract import names

Delivery = Literal["direct", "agent", "injector", "csi", "external-secrets", "vso"]
OnChange = Literal["reload", "restart", "ignore"]
SourceKind = Literal["mounted", "rendered", "kv", "database", "rabbitmq", "pki"]
Use = Literal["valkey", "tenants", "peers"]
# The sidecar's variables that a source may set; what each means is in docs/configuration.md.
SettingName = Literal[
    "CHIASM_WORKER_TIMEOUT_SECONDS",
    "CHIASM_WORKER_RETRIES",
    "CHIASM_PEER_CONNECT_TIMEOUT_SECONDS",
    "CHIASM_PEER_TIMEOUT_SECONDS",
    "CHIASM_PEER_RETRIES",
    "CHIASM_BACKOFF_FIRST_SECONDS",
    "CHIASM_BACKOFF_MAX_SECONDS",
    "CHIASM_BACKOFF_JITTER",
    "CHIASM_VAULT_TIMEOUT_SECONDS",
    "CHIASM_VAULT_BACKOFF_FIRST_SECONDS",
    "CHIASM_VAULT_BACKOFF_MAX_SECONDS",
    "CHIASM_LOG_LEVEL",
]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class VaultLogin(_Frozen):
    """The server, and how the sidecar logs in: a token of the pod's ServiceAccount."""

    address: str
    namespace: str | None = None
    ca_path: Path | None = Field(default=None, description="None: the system's authorities.")
    auth_mount: str = "kubernetes"
    role: str
    token_path: Path = Path(names.VAULT_TOKEN_FILE)


class ConfigSource(_Frozen):
    """One source, resolved.

    `path` is of what is delivered: a folder of entries (mounted), or one JSON object of them
    (rendered). The others are asked of the server: `mount` and `entry`, which is the path of a kv
    secret or the role that credentials are made by.
    """

    name: str
    kind: SourceKind
    path: Path | None = None
    mount: str | None = None
    entry: str | None = None
    common_name: str | None = None
    ttl_seconds: int | None = None
    on_change: OnChange = "reload"
    keys: dict[str, OnChange] = Field(default_factory=dict, description="That differ from it.")
    leased: bool = Field(default=False, description="Each pod has its own, which ends at a time.")
    uses: tuple[Use, ...] = Field(default=(), description="By what a new value is proved.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        delivered = self.kind in ("mounted", "rendered")
        if delivered != (self.path is not None) or delivered == bool(self.mount and self.entry):
            raise ValueError("mounted and rendered have path, all others mount and entry")
        if (self.kind == "pki") != (self.common_name is not None):
            raise ValueError("pki, and nothing else, has common_name")
        return self

    def on(self, key: str) -> OnChange:
        """What a change of one entry does."""
        return self.keys.get(key, self.on_change)


class Configuration(_Frozen):
    """What `sidecar.json` says of a pod's sources."""

    environment: str
    sources: tuple[ConfigSource, ...] = ()
    vault: VaultLogin | None = Field(default=None, description="None: nothing is asked of one.")
    current_path: Path = Field(
        default=Path(names.CONFIG_CURRENT_DIR),
        description="A folder in memory that only the sidecar has; it outlives the container.",
    )
    digest_key_path: Path | None = Field(
        default=None, description="A key that all pods share; None: ids of one process only."
    )
    approvals_path: Path | None = Field(
        default=None, description="What the operator allows; None: everything that is proved."
    )

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        asked = [each.name for each in self.sources if each.mount is not None]
        if asked and self.vault is None:
            raise ValueError(f"source {asked[0]!r} needs vault")
        return self


class Approval(_Frozen):
    """One value of a source that pods may take."""

    id: str
    prover: str | None = Field(default=None, description="The one pod that may; None: every pod.")


class Approvals(_Frozen):
    """The file that the operator writes beside the traffic plan.

    A source is one of a revision's: of another revision it may be another secret.
    """

    asked: str | None = Field(
        default=None,
        description="The annotation reload-config: another value asks for new credentials now.",
    )
    revisions: dict[str, dict[str, Approval]] = Field(
        default={}, description="By revision, and there by the source's name."
    )

    def of(self, revision: str, source: str) -> Approval | None:
        """What pods of a revision may take of a source."""
        return self.revisions.get(revision, {}).get(source)


class LeaseReport(_Frozen):
    """A lease in use. Times are seconds since 1970."""

    began: float
    expires: float = Field(description="When it ends if nothing renews it.")
    ends: float = Field(description="When it ends whatever is done: the server's max_ttl.")
    ttl_seconds: float = Field(description="Of the whole lease, from `began` to `ends`.")
    renewable: bool


class SourceReport(_Frozen):
    """What a sidecar says of one source; never a value.

    Attributes:
        id: what is in use; None before the first proof.
        offered: what is there and not in use yet.
        refused: why `offered` is not taken: its proof failed.
        fault: why the source could not be asked the last time; what is in use stays.
        fault_since: since when, seconds since 1970.
        restart: the value that this pod must be replaced for; None: none.
        old_leases: that are not revoked yet.
    """

    name: str
    leased: bool = False
    id: str | None = None
    offered: str | None = None
    refused: str | None = None
    fault: str | None = None
    fault_since: float | None = None
    restart: str | None = None
    lease: LeaseReport | None = None
    old_leases: int = 0
    rotations: int = 0


class ConfigReport(_Frozen):
    """Part of a pod's state.

    Attributes:
        asked: the last `Approvals.asked` that every source has followed.
    """

    environment: str = ""
    asked: str | None = None
    sources: tuple[SourceReport, ...] = ()
