"""`delivery: vso`: objects of the Vault Secrets Operator, which writes a Secret for each source.

It also puts the server's whole answer into a Secret unless told not to; where each entry is a
tenant, that would be one. Fields: config/crd/bases of
github.com/hashicorp/vault-secrets-operator, version v1beta1.
"""

from __future__ import annotations

from typing import Any

from chiasm_contract.api.environments import Source, Vault

from chiasm_operator.render.configuration.pulling import secret_type
from chiasm_operator.render.configuration.resolved import address, by_delivery
from chiasm_operator.render.delivery.naming import made as an_object
from chiasm_operator.render.delivery.naming import name, whole
from chiasm_operator.render.target import Target

_API = "secrets.hashicorp.com/v1beta1"
_CONNECTION, _AUTH = "VaultConnection", "VaultAuth"
_STATIC, _DYNAMIC, _PKI = "VaultStaticSecret", "VaultDynamicSecret", "VaultPKISecret"
KINDS = (_CONNECTION, _AUTH, _STATIC, _DYNAMIC, _PKI)

_TOKEN_SECONDS = 600
_RENEWAL_PERCENT = 67


def made(target: Target) -> list[dict[str, Any]]:
    """The objects; none with another delivery."""
    found = by_delivery(target, "vso")
    if found is None:
        return []
    vault, sources = found
    shared = whole(target)
    connection = {"address": vault.address, "skipTLSVerify": False}
    return [
        an_object(_API, _CONNECTION, shared, connection),
        an_object(_API, _AUTH, shared, _auth(target, vault)),
        *(_secret(target, source) for source in sources),
    ]


def _auth(target: Target, vault: Vault) -> dict[str, Any]:
    return {
        "vaultConnectionRef": whole(target),
        "method": "kubernetes",
        "mount": vault.auth.mount,
        **({"namespace": vault.namespace} if vault.namespace else {}),
        "kubernetes": {
            "role": vault.auth.role,
            "serviceAccount": target.name,
            "audiences": [vault.auth.audience],
            "tokenExpirationSeconds": _TOKEN_SECONDS,
        },
    }


def _secret(target: Target, source: Source) -> dict[str, Any]:
    called = name(target, source)
    mount, entry = address(source)
    spec = {
        "vaultAuthRef": whole(target),
        "mount": mount,
        "destination": {
            "name": called,
            "create": True,
            "transformation": {"excludeRaw": True},
            **secret_type(target, source),
        },
    }
    if source.kv:
        static = {"type": "kv-v2", "path": entry, "refreshAfter": "1m", "hmacSecretData": True}
        return an_object(_API, _STATIC, called, {**spec, **static})
    if source.pki:
        issued = {
            "role": entry,
            "commonName": source.pki.common_name,
            "ttl": f"{source.pki.ttl_seconds}s",
            # Made anew when a third of its time is left.
            "expiryOffset": f"{source.pki.ttl_seconds // 3}s",
        }
        return an_object(_API, _PKI, called, {**spec, **issued})
    leased = {"path": f"creds/{entry}", "renewalPercent": _RENEWAL_PERCENT, "revoke": True}
    return an_object(_API, _DYNAMIC, called, {**spec, **leased})
