"""What the sidecar mounts for the tiers of cache blocks; the worker mounts none of it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from chiasm_contract import names, quantity
from chiasm_contract.api.tiers import SecretEntry
from chiasm_contract.tiers import ValkeyTier

from chiasm_operator.render.configuration.references import entry_path
from chiasm_operator.render.pod.secret_use import SecretUse
from chiasm_operator.render.target import Target

_DISK, _VALKEY, _PEERS = "disk-tier", "valkey", "peers"
_USERNAME_FILE = f"{names.VALKEY_DIR}/username"
_CERTIFICATE_FILE, _KEY_FILE = f"{names.VALKEY_DIR}/tls.crt", f"{names.VALKEY_DIR}/tls.key"


def tier_volumes(target: Target) -> list[dict[str, Any]]:
    """A disk for blocks, the secret of peers, and the Secrets of a Valkey in one folder."""
    tiers = target.spec.tiers
    volumes: list[dict[str, Any]] = []
    if tiers is not None and tiers.disk is not None:
        # Twice: a record is written beside the one that it takes the place of.
        size = 2 * quantity.to_bytes(tiers.disk.max_bytes)
        volumes.append({"name": _DISK, "emptyDir": {"sizeLimit": str(size)}})
    if sources := _sources(target, _PEERS):
        volumes.append({"name": _PEERS, "projected": {"sources": sources, "defaultMode": 0o440}})
    if sources := _sources(target, _VALKEY):
        volumes.append({"name": _VALKEY, "projected": {"sources": sources, "defaultMode": 0o440}})
    return volumes


def tier_mounts(target: Target) -> list[dict[str, Any]]:
    """Where the sidecar finds them."""
    tiers = target.spec.tiers
    mounts: list[dict[str, Any]] = []
    if tiers is not None and tiers.disk is not None:
        mounts.append({"name": _DISK, "mountPath": names.DISK_TIER_DIR})
    if _sources(target, _PEERS):
        mounts.append({"name": _PEERS, "mountPath": names.PEERS_DIR, "readOnly": True})
    if _sources(target, _VALKEY):
        mounts.append({"name": _VALKEY, "mountPath": names.VALKEY_DIR, "readOnly": True})
    return mounts


def path(entry: SecretEntry, mounted: str) -> Path:
    """Where the sidecar reads an entry: where it is `mounted`, or what it uses of a source."""
    return entry_path(entry, mounted)


def valkey(target: Target) -> ValkeyTier | None:
    """What `sidecar.json` says of the Valkey; None without one."""
    tiers = target.spec.tiers
    asked = tiers.valkey if tiers is not None else None
    if asked is None:
        return None

    def found(entry: SecretEntry | None, mounted: str) -> Path | None:
        return None if entry is None else entry_path(entry, mounted)

    return ValkeyTier(
        host=asked.host,
        port=asked.port,
        tls=asked.tls,
        ca_path=found(asked.ca_secret, names.VALKEY_CA_FILE),
        username=asked.username,
        username_path=found(asked.username_secret, _USERNAME_FILE),
        password_path=found(asked.password_secret, names.VALKEY_PASSWORD_FILE),
        certificate_path=found(asked.client_certificate_secret, _CERTIFICATE_FILE),
        certificate_key_path=found(asked.client_key_secret, _KEY_FILE),
        key_prefix=asked.key_prefix,
        max_bytes=quantity.to_bytes(asked.max_bytes),
        ttl_seconds=asked.ttl_seconds,
        timeout_seconds=asked.timeout_milliseconds / 1000,
    )


def secret_uses(target: Target) -> tuple[SecretUse, ...]:
    """The Secrets of peers and of a Valkey, and the fields that name them."""
    return tuple(_files(target))


def _files(target: Target) -> dict[SecretUse, str]:
    """Where each entry is to be found."""
    tiers = target.spec.tiers
    if tiers is None:
        return {}
    peers, valkey = tiers.peers, tiers.valkey
    wanted: dict[tuple[str, str], tuple[SecretEntry | None, str]] = {}
    if peers is not None:
        wanted[_PEERS, "peers.secret"] = (peers.secret, names.PEERS_KEY_FILE)
    if valkey is not None:
        for name, entry, file in (
            ("usernameSecret", valkey.username_secret, _USERNAME_FILE),
            ("passwordSecret", valkey.password_secret, names.VALKEY_PASSWORD_FILE),
            ("caSecret", valkey.ca_secret, names.VALKEY_CA_FILE),
            ("clientCertificateSecret", valkey.client_certificate_secret, _CERTIFICATE_FILE),
            ("clientKeySecret", valkey.client_key_secret, _KEY_FILE),
        ):
            wanted[_VALKEY, f"valkey.{name}"] = (entry, file)
    return {
        SecretUse(volume, f"spec.tiers.{field}", entry.name, entry.key): path
        for (volume, field), (entry, path) in wanted.items()
        if entry is not None and entry.name is not None
    }


def _sources(target: Target, volume: str) -> list[dict[str, Any]]:
    return [
        {
            "secret": {
                "name": use.name,
                "items": [{"key": use.key, "path": PurePosixPath(path).name}],
            }
        }
        for use, path in _files(target).items()
        if use.volume == volume
    ]
