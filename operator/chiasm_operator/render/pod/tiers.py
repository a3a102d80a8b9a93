"""What the sidecar mounts for the tiers of cache blocks; the worker mounts none of it."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from chiasm_contract import names, quantity
from chiasm_contract.api.tiers import SecretEntry

from chiasm_operator.render.pod.secret_use import SecretUse
from chiasm_operator.render.target import Target

_DISK, _VALKEY, _PEERS = "disk-tier", "valkey", "peers"


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
        password = (valkey.password_secret, names.VALKEY_PASSWORD_FILE)
        wanted[_VALKEY, "valkey.passwordSecret"] = password
        wanted[_VALKEY, "valkey.caSecret"] = (valkey.ca_secret, names.VALKEY_CA_FILE)
    return {
        SecretUse(volume, f"spec.tiers.{field}", entry.name, entry.key): path
        for (volume, field), (entry, path) in wanted.items()
        if entry is not None
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
