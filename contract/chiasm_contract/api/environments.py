"""`spec.config.environments`: where configuration and secrets come from, and a revision's share.

An environment is a place on the way of a release, such as staging and prod-canary: which images
run there, which share of new conversations a revision gets while it is there, and from which
sources its configuration comes. `spec.config.environment` says in which one the present spec is;
the others are only kept beside it. Fields elsewhere in the spec take a value from a source by its
name. How each delivery works is in docs/configuration.md. Must not know: how a value is fetched.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from chiasm_contract.api.addresses import Origin
from chiasm_contract.api.fields import (
    ApiModel,
    DnsName,
    SecretEntryName,
    SourceName,
    rule,
    rules,
)
from chiasm_contract.api.rollout import Weight
from chiasm_contract.configuration import Delivery, OnChange, SettingName

MAX_ENVIRONMENTS = 8
MAX_SOURCES = 8

EnvironmentName = SourceName
# A path inside the server: parts of letters, digits and - _ . without `..`.
VaultPath = Annotated[
    str,
    StringConstraints(max_length=256, pattern=r"^[A-Za-z0-9_-][\w.-]*(/[A-Za-z0-9_-][\w.-]*)*$"),
]
ImageReference = Annotated[
    str, StringConstraints(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9][^\s]*$")
]
_TAKES = "configMap, secret, kv, database, rabbitmq and pki"
_ONE_SOURCE = " + ".join(
    f"(has(self.{name}) ? 1 : 0)"
    for name in ("configMap", "secret", "kv", "database", "rabbitmq", "pki")
)


class NamedObject(ApiModel):
    """A ConfigMap or Secret in the resource's namespace."""

    name: DnsName = Field(description="Its name.")


class KvSource(ApiModel):
    """A secret of a kv version 2 engine."""

    mount: VaultPath = Field(default="secret", description="Where the engine is mounted.")
    path: VaultPath = Field(description="The secret inside it.")


class LeaseSource(ApiModel):
    """A role of an engine that makes credentials with a lease: database or rabbitmq."""

    mount: VaultPath = Field(description="Where the engine is mounted.")
    role: VaultPath = Field(description="The role that credentials are made by.")


class PkiSource(ApiModel):
    """A role of a pki engine; each certificate is one of its own."""

    mount: VaultPath = Field(default="pki", description="Where the engine is mounted.")
    role: VaultPath = Field(description="The role that certificates are issued by.")
    common_name: Annotated[str, StringConstraints(min_length=1, max_length=253)] = Field(
        description="Name in the certificate."
    )
    ttl_seconds: int = Field(
        default=86_400, ge=60, le=31_536_000, description="How long a certificate is asked for."
    )


class SourceKey(ApiModel):
    """What is special about one entry of a source."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.env) || (has(self.onChange) && self.onChange != 'reload')",
                "must be restart or ignore where env is set: a process cannot be given another "
                "environment",
                field=".onChange",
            )
        )
    )

    key: SecretEntryName = Field(description="The entry.")
    on_change: OnChange = Field(
        default="reload",
        description="reload: pods take a changed value while they run. restart: pods are replaced, "
        "a new one first. ignore: only pods that start later have it.",
    )
    env: SettingName | None = Field(
        default=None,
        description="The setting of the sidecar that has this value; for a configMap or secret.",
    )


class Source(ApiModel):
    """One set of entries: exactly one of configMap, secret, kv, database, rabbitmq and pki."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(f"{_ONE_SOURCE} == 1", f"set exactly one of {_TAKES}"),
            rule(
                "has(self.configMap) || has(self.secret) || !has(self.keys) "
                "|| !self.keys.exists(k, has(k.env))",
                "env is allowed only in a configMap or secret: other values become no variable",
                field=".keys",
            ),
        )
    )

    name: SourceName = Field(description="By which fields of the spec name it.")
    config_map: NamedObject | None = None
    secret: NamedObject | None = None
    kv: KvSource | None = None
    database: LeaseSource | None = None
    rabbitmq: LeaseSource | None = None
    pki: PkiSource | None = None
    on_change: OnChange = Field(
        default="reload", description="What a changed entry does that is not among keys."
    )
    keys: list[SourceKey] = Field(
        default_factory=list,
        max_length=32,
        description="Entries that differ from the others.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"]},
    )

    @property
    def in_vault(self) -> bool:
        """Whether a Vault or OpenBao has it."""
        return self.config_map is None and self.secret is None

    @property
    def leased(self) -> bool:
        """Whether the server makes it anew for each who asks, and it ends at a time."""
        return self.in_vault and self.kv is None


class VaultAuth(ApiModel):
    """How a pod says who it is: by a token of its ServiceAccount, made for this server alone."""

    mount: VaultPath = Field(default="kubernetes", description="Where the auth method is mounted.")
    role: VaultPath = Field(description="The role that pods log in as.")
    audience: Annotated[str, StringConstraints(min_length=1, max_length=253)] = Field(
        default="vault", description="Whom the token is for; the role must ask for the same."
    )


class Vault(ApiModel):
    """A HashiCorp Vault or an OpenBao, and the way in which its secrets come into pods."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.caConfigMap) || self.address.startsWith('https://')",
                "needs an address that begins with https://",
                field=".caConfigMap",
            ),
            rule(
                "!has(self.agentImage) || (has(self.delivery) && self.delivery == 'agent')",
                "is allowed only with delivery: agent",
                field=".agentImage",
            ),
        )
    )

    address: Origin = Field(description="Its URL, without a path, as pods reach it.")
    flavor: Literal["openbao", "vault"] = Field(
        default="openbao",
        description="Whose names are written: the agent's program, and where injector and csi "
        "differ between both.",
    )
    namespace: VaultPath | None = Field(default=None, description="The server's namespace.")
    ca_config_map: NamedObject | None = Field(
        default=None, description="A ConfigMap whose ca.crt signed the server's certificate."
    )
    auth: VaultAuth
    delivery: Delivery = Field(
        default="direct",
        description="direct: the sidecar asks the server. agent: the server's own agent runs in "
        "the pod. injector: its webhook puts the agent there. csi: the Secrets Store driver mounts "
        "them. external-secrets and vso: the operator of that name writes a Secret.",
    )
    agent_image: ImageReference | None = Field(
        default=None, description="Image of the agent; that of the chart when absent."
    )


class EnvironmentImages(ApiModel):
    """Images of this environment; the chart's where absent."""

    worker: ImageReference | None = Field(default=None, description="By tag or by digest.")
    sidecar: ImageReference | None = Field(default=None, description="By tag or by digest.")


class Environment(ApiModel):
    """One place on the way of a release."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.vault) || !has(self.sources) "
                "|| self.sources.all(s, has(s.configMap) || has(s.secret))",
                "must be set: a source names a secret of it",
                field=".vault",
            ),
        )
    )

    name: EnvironmentName = Field(description="Such as staging or prod-canary.")
    weight: Weight | None = Field(
        default=None,
        description="Per cent of new conversations that a new revision gets while it is here, "
        "instead of spec.rollout.steps; the annotation canary-weight comes before it.",
    )
    images: EnvironmentImages = EnvironmentImages()
    vault: Vault | None = None
    sources: list[Source] = Field(
        default_factory=list,
        max_length=MAX_SOURCES,
        description="Where values come from.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )

    def source(self, name: str) -> Source | None:
        """The source of that name."""
        return next((each for each in self.sources if each.name == name), None)

    @property
    def delivery(self) -> str | None:
        """How the server's secrets come into pods; None: there is no server."""
        return self.vault.delivery if self.vault is not None else None

    @property
    def asks_itself(self) -> bool:
        """Whether sidecars ask the server, and so hold the leases that they get."""
        return self.delivery == "direct"

    def leases(self, source: Source) -> bool:
        """Whether each pod has a lease of a source for itself.

        Not where one controller asks and writes a Secret: what is in it all pods have alike.
        """
        return source.leased and self.delivery in ("direct", "agent", "injector", "csi")
