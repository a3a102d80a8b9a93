"""`delivery: external-secrets`: objects of External Secrets, which writes a Secret for each source.

A kv secret has a SecretStore of its own; whatever is made when it is asked for has a generator.
That project renews no lease: it has credentials made anew each interval, so a role's leases must
last longer than that by what pods need to take them up. Fields: config/crds/bases of
github.com/external-secrets/external-secrets, versions v1 and v1alpha1.
"""

from __future__ import annotations

from typing import Any

from chiasm_contract.api.environments import Source, Vault

from chiasm_operator.render.configuration.pulling import secret_type
from chiasm_operator.render.configuration.resolved import address, api_path, by_delivery
from chiasm_operator.render.delivery.naming import made as an_object
from chiasm_operator.render.delivery.naming import name
from chiasm_operator.render.target import Target

_API, _GENERATORS = "external-secrets.io/v1", "generators.external-secrets.io/v1alpha1"
_STORE, _SECRET, _GENERATOR = "SecretStore", "ExternalSecret", "VaultDynamicSecret"
KINDS = (_STORE, _SECRET, f"{_GENERATOR}.generators.external-secrets.io")

_KV_INTERVAL = "1m0s"
_LEASE_INTERVAL = "15m0s"


def made(target: Target) -> list[dict[str, Any]]:
    """The objects; none with another delivery."""
    found = by_delivery(target, "external-secrets")
    if found is None:
        return []
    vault, sources = found
    return [each for source in sources for each in _of(target, vault, source)]


def _of(target: Target, vault: Vault, source: Source) -> list[dict[str, Any]]:
    called = name(target, source)
    if source.kv:
        store = {**_provider(target, vault), "path": source.kv.mount, "version": "v2"}
        first = an_object(_API, _STORE, called, {"provider": {"vault": store}})
        wanted: dict[str, Any] = {
            "secretStoreRef": {"kind": _STORE, "name": called},
            "dataFrom": [{"extract": {"key": address(source)[1]}}],
        }
    else:
        first = an_object(_GENERATORS, _GENERATOR, called, _generated(target, vault, source))
        reference = {"apiVersion": _GENERATORS, "kind": _GENERATOR, "name": called}
        wanted = {"dataFrom": [{"sourceRef": {"generatorRef": reference}}]}
    shape = secret_type(target, source)
    spec = {
        "refreshInterval": _interval(source),
        **wanted,
        "target": {
            "name": called,
            "creationPolicy": "Owner",
            # What pods use stays where it is when the server has it no longer.
            "deletionPolicy": "Retain",
            **({"template": shape} if shape else {}),
        },
    }
    return [first, an_object(_API, _SECRET, called, spec)]


def _interval(source: Source) -> str:
    if source.kv:
        return _KV_INTERVAL
    # A certificate is made anew when a third of its time is left.
    return f"{source.pki.ttl_seconds * 2 // 3}s" if source.pki else _LEASE_INTERVAL


def _generated(target: Target, vault: Vault, source: Source) -> dict[str, Any]:
    pki = source.pki
    written = (
        {
            "method": "POST",
            "parameters": {"common_name": pki.common_name, "ttl": f"{pki.ttl_seconds}s"},
        }
        if pki
        else {"method": "GET"}
    )
    return {"path": f"/{api_path(source)}", **written, "provider": _provider(target, vault)}


def _provider(target: Target, vault: Vault) -> dict[str, Any]:
    account = {"name": target.name, "audiences": [vault.auth.audience]}
    authority = vault.ca_config_map
    return {
        "server": vault.address,
        **({"namespace": vault.namespace} if vault.namespace else {}),
        **(
            {"caProvider": {"type": "ConfigMap", "name": authority.name, "key": "ca.crt"}}
            if authority
            else {}
        ),
        "auth": {
            "kubernetes": {
                "mountPath": vault.auth.mount,
                "role": vault.auth.role,
                "serviceAccountRef": account,
            }
        },
    }
