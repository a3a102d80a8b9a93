"""`spec.tenants`: who may ask, by API key, and who shares cached vectors with whom."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from chiasm_contract.api.fields import (
    ONE_ORIGIN,
    ApiModel,
    DnsName,
    SecretEntryName,
    SourceName,
    rule,
    rules,
)


class KeysSecret(ApiModel):
    """The Secret, or source of the environment, that holds the API keys."""

    model_config = ConfigDict(json_schema_extra=rules(ONE_ORIGIN))

    name: DnsName | None = Field(
        default=None,
        description="Name of the Secret. Each entry is a tenant: the entry's name is the "
        "tenant's, its value has one API key a line, as it is or as sha256: and its sha256 in hex.",
    )
    source: SourceName | None = Field(
        default=None,
        description="Name of a source of the environment whose entries are such; they count while "
        "pods run.",
    )


class ServerKeySecret(ApiModel):
    """What holds the key with which tenants' names become scopes."""

    model_config = ConfigDict(json_schema_extra=rules(ONE_ORIGIN))

    name: DnsName | None = Field(
        default=None,
        description="Name of the Secret. Resources with other server keys never share cached "
        "vectors.",
    )
    source: SourceName | None = Field(
        default=None, description="Name of a source of the environment that holds it."
    )
    key: SecretEntryName = Field(
        default="server-key", description="Its entry, with at least 32 random bytes."
    )


class Tenants(ApiModel):
    """API keys, and a cache that no tenant shares with another; without it anybody may ask."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.keysSecret.name) || !has(self.serverKeySecret.name) "
                "|| self.keysSecret.name != self.serverKeySecret.name",
                "must be another Secret than keysSecret, in which every entry is a tenant",
                field=".serverKeySecret.name",
            ),
            rule(
                "!has(self.keysSecret.source) || !has(self.serverKeySecret.source) "
                "|| self.keysSecret.source != self.serverKeySecret.source",
                "must be another source than keysSecret, in which every entry is a tenant",
                field=".serverKeySecret.source",
            ),
        )
    )

    keys_secret: KeysSecret
    server_key_secret: ServerKeySecret
    required: bool = Field(
        default=True,
        description="Whether a request without an API key is answered 401; a wrong key always is. "
        "Requests without a key share one scope of their own.",
    )
