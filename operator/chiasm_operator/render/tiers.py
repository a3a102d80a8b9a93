"""What the sidecar mounts for the tiers of cache blocks; the worker mounts none of it."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from chiasm_contract import names, quantity

from chiasm_operator.render.target import Target

_DISK, _VALKEY = "disk-tier", "valkey"


def tier_volumes(target: Target) -> list[dict[str, Any]]:
    """A disk for blocks, and the Secrets of a Valkey in one folder."""
    tiers = target.spec.tiers
    volumes: list[dict[str, Any]] = []
    if tiers is not None and tiers.disk is not None:
        # Twice: a record is written beside the one that it takes the place of.
        size = 2 * quantity.to_bytes(tiers.disk.max_bytes)
        volumes.append({"name": _DISK, "emptyDir": {"sizeLimit": str(size)}})
    if sources := _secrets(target):
        volumes.append({"name": _VALKEY, "projected": {"sources": sources, "defaultMode": 0o440}})
    return volumes


def tier_mounts(target: Target) -> list[dict[str, Any]]:
    """Where the sidecar finds them."""
    tiers = target.spec.tiers
    mounts: list[dict[str, Any]] = []
    if tiers is not None and tiers.disk is not None:
        mounts.append({"name": _DISK, "mountPath": names.DISK_TIER_DIR})
    if _secrets(target):
        mounts.append({"name": _VALKEY, "mountPath": names.VALKEY_DIR, "readOnly": True})
    return mounts


def _secrets(target: Target) -> list[dict[str, Any]]:
    tiers = target.spec.tiers
    if tiers is None or tiers.valkey is None:
        return []
    wanted = (
        (tiers.valkey.password_secret, names.VALKEY_PASSWORD_FILE),
        (tiers.valkey.ca_secret, names.VALKEY_CA_FILE),
    )
    return [
        {
            "secret": {
                "name": secret.name,
                "items": [{"key": secret.key, "path": PurePosixPath(path).name}],
            }
        }
        for secret, path in wanted
        if secret is not None
    ]
