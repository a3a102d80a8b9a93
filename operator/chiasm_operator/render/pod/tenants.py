"""Tenants' Secrets: mounted into the sidecar and nowhere else; the worker learns no key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chiasm_contract import names
from chiasm_contract.tenants import TenantKeys

from chiasm_operator.render.configuration.references import current
from chiasm_operator.render.pod.secret_use import SecretUse
from chiasm_operator.render.target import Target

KEYS_VOLUME, SERVER_KEY_VOLUME = "tenant-keys", "server-key"
# Readable by the containers' group, which is the pod's fsGroup.
_MODE = 0o440


def secret_uses(target: Target) -> tuple[SecretUse, ...]:
    """The Secrets, and the fields that name them; what a source has is mounted as that."""
    tenants = target.spec.tenants
    if tenants is None:
        return ()
    keys, server_key = tenants.keys_secret, tenants.server_key_secret
    named = (
        (KEYS_VOLUME, "spec.tenants.keysSecret", keys.name, None),
        (SERVER_KEY_VOLUME, "spec.tenants.serverKeySecret", server_key.name, server_key.key),
    )
    return tuple(
        SecretUse(volume, field, name, key)
        for volume, field, name, key in named
        if name is not None
    )


def volumes(target: Target) -> list[dict[str, Any]]:
    """The pod's volumes for both Secrets."""
    return [_volume(use) for use in secret_uses(target)]


def _volume(use: SecretUse) -> dict[str, Any]:
    items = [{"key": use.key, "path": names.SERVER_KEY_FILE}] if use.key else []
    secret = {"secretName": use.name, "defaultMode": _MODE, **({"items": items} if items else {})}
    return {"name": use.volume, "secret": secret}


def mounts(target: Target) -> list[dict[str, Any]]:
    """Where the sidecar finds them. No subPath: such mounts never change."""
    folders = {KEYS_VOLUME: names.TENANT_KEYS_DIR, SERVER_KEY_VOLUME: names.SERVER_KEY_DIR}
    return [
        {"name": use.volume, "mountPath": folders[use.volume], "readOnly": True}
        for use in secret_uses(target)
    ]


def config(target: Target) -> TenantKeys | None:
    """What `sidecar.json` says of them."""
    tenants = target.spec.tenants
    if tenants is None:
        return None
    keys, server_key = tenants.keys_secret.source, tenants.server_key_secret
    mounted = Path(names.SERVER_KEY_DIR) / names.SERVER_KEY_FILE
    return TenantKeys(
        keys_path=current(keys) if keys else Path(names.TENANT_KEYS_DIR),
        server_key_path=current(server_key.source, server_key.key)
        if server_key.source
        else mounted,
        required=tenants.required,
    )
