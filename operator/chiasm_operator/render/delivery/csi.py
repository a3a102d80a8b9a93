"""`delivery: csi`: SecretProviderClasses of the Secrets Store driver, and a pod's volumes of them.

The driver mounts entries by name: those that fields of the spec take, and those in `keys`. Its
provider asks the server from the node, so it is there that a private authority must be known.
Fields: github.com/kubernetes-sigs/secrets-store-csi-driver (apis/v1), and internal/config of
github.com/hashicorp/vault-csi-provider and github.com/openbao/openbao-csi-provider.
"""

from __future__ import annotations

from typing import Any

import yaml
from chiasm_contract.api.environments import Source, Vault

from chiasm_operator.render.configuration.references import references
from chiasm_operator.render.configuration.resolved import api_path, by_delivery
from chiasm_operator.render.delivery.naming import made as an_object
from chiasm_operator.render.delivery.naming import name
from chiasm_operator.render.target import Target

_API, _CLASS = "secrets-store.csi.x-k8s.io/v1", "SecretProviderClass"
KINDS = (_CLASS,)

_DRIVER = "secrets-store.csi.k8s.io"
# Provider -> what the names of its parameters begin with.
_PREFIXES = {"openbao": "bao", "vault": "vault"}


def made(target: Target) -> list[dict[str, Any]]:
    """The objects; none with another delivery."""
    found = by_delivery(target, "csi")
    if found is None:
        return []
    vault, sources = found
    return [
        an_object(
            _API,
            _CLASS,
            name(target, source),
            {"provider": vault.flavor, "parameters": _parameters(target, vault, source)},
        )
        for source in sources
    ]


def _parameters(target: Target, vault: Vault, source: Source) -> dict[str, str]:
    prefix = _PREFIXES[vault.flavor]
    return {
        f"{prefix}Address": vault.address,
        f"{prefix}AuthMountPath": vault.auth.mount,
        **({f"{prefix}Namespace": vault.namespace} if vault.namespace else {}),
        "roleName": vault.auth.role,
        "audience": vault.auth.audience,
        "objects": yaml.safe_dump(
            [_entry(source, key) for key in _keys(target, source)], sort_keys=False
        ),
    }


def _keys(target: Target, source: Source) -> list[str]:
    named = [each.key for each in references(target.spec) if each.source == source.name]
    return sorted({*filter(None, named), *(key.key for key in source.keys)})


def _entry(source: Source, key: str) -> dict[str, Any]:
    """Entries of one path are asked for once, so that both halves of a lease fit."""
    pki = source.pki
    written = (
        {
            "method": "PUT",
            "secretArgs": {"common_name": pki.common_name, "ttl": f"{pki.ttl_seconds}s"},
        }
        if pki
        else {}
    )
    return {"objectName": key, "secretPath": api_path(source), "secretKey": key, **written}


def volume(target: Target, source: Source) -> dict[str, Any]:
    """The pod's volume of one source."""
    attributes = {"secretProviderClass": name(target, source)}
    return {"csi": {"driver": _DRIVER, "readOnly": True, "volumeAttributes": attributes}}
