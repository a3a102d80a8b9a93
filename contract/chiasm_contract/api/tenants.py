"""`spec.tenants`: who may ask, by API key, and who shares cached vectors with whom."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from chiasm_contract.api.fields import ApiModel, DnsName, SecretEntryName, rule, rules


class KeysSecret(ApiModel):
    """The Secret that holds the API keys."""

    name: DnsName = Field(
        description="Its name. Each entry is a tenant: the entry's name is the tenant's, its value "
        "has one API key a line, as it is or as sha256: and its sha256 in hex."
    )


class ServerKeySecret(ApiModel):
    """The Secret that holds the key with which tenants' names become scopes."""

    name: DnsName = Field(
        description="Its name. Resources with other server keys never share cached vectors."
    )
    key: SecretEntryName = Field(
        default="server-key", description="Its entry, with at least 32 random bytes."
    )


class Tenants(ApiModel):
    """API keys, and a cache that no tenant shares with another; without it anybody may ask."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "self.keysSecret.name != self.serverKeySecret.name",
                "must be another Secret than keysSecret, in which every entry is a tenant",
                field=".serverKeySecret.name",
            )
        )
    )

    keys_secret: KeysSecret
    server_key_secret: ServerKeySecret
    required: bool = Field(
        default=True,
        description="Whether a request without an API key is answered 401; a wrong key always is. "
        "Requests without a key share one scope of their own.",
    )
