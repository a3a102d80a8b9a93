"""Credentials as they lie in files at one moment: user, password and certificate of one generation.

A mounted folder is replaced by pointing its link `..data` elsewhere. All files of a folder are read
through where that link leads at one moment, so that never an old user goes with a new password.

Must not know: the server. Nothing of what is read is ever part of a message or a repr.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path

from chiasm_contract.tiers import ValkeyTier as ValkeySettings

from chiasm_sidecar.kv.tiers.base import TierFailed

_LINK = "..data"
_FILES = (
    "username_path",
    "password_path",
    "ca_path",
    "certificate_path",
    "certificate_key_path",
)


@dataclass(frozen=True)
class Login:
    """What a connection needs; paths lead into the generation that was current."""

    username: str | None = field(repr=False)
    password: str | None = field(repr=False)
    ca_path: Path | None
    certificate_path: Path | None
    certificate_key_path: Path | None


def stamp(settings: ValkeySettings) -> Hashable:
    """A value that changes whenever what `read` returns may have changed."""
    return tuple(_sign(path) for path in _paths(settings).values())


def read(settings: ValkeySettings) -> Login:
    """What the files say now.

    Raises: TierFailed naming the setting whose file cannot be read.
    """
    paths = _paths(settings)
    folders = {path.parent: _mounted(path.parent) for path in paths.values()}
    real = {name: folders[path.parent] / path.name for name, path in paths.items()}
    for name in ("ca_path", "certificate_path", "certificate_key_path"):
        if name in real and not os.access(real[name], os.R_OK):
            raise TierFailed(f"valkey: {name} cannot be read")
    username = settings.username
    if "username_path" in real:
        username = _text("username_path", real["username_path"])
    password = None
    if "password_path" in real:
        password = _text("password_path", real["password_path"])
    return Login(
        username,
        password,
        real.get("ca_path"),
        real.get("certificate_path"),
        real.get("certificate_key_path"),
    )


def _paths(settings: ValkeySettings) -> dict[str, Path]:
    found = {name: getattr(settings, name) for name in _FILES}
    return {name: path for name, path in found.items() if path is not None}


def _mounted(folder: Path) -> Path:
    """Where a mounted folder's content lies now; anything else is where it is."""
    linked = folder / _LINK
    return linked.resolve() if linked.is_symlink() else folder


def _sign(path: Path) -> Hashable:
    try:
        status = os.stat(path)
    except OSError as error:
        return error.errno
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _text(name: str, path: Path) -> str:
    try:
        return path.read_text().rstrip("\n")
    except OSError as error:
        raise TierFailed(f"valkey: {name} cannot be read, errno {error.errno}") from None
    except UnicodeDecodeError:
        raise TierFailed(f"valkey: {name} holds other characters than UTF-8") from None
