"""Reads tenants' keys and the server key from where they are mounted.

Keys are a folder with a file for each tenant, which is what a Secret becomes in a pod, or one file
of NAME=KEY lines, which `kubectl create secret generic --from-env-file` takes too. Kubernetes
replaces a mounted Secret by pointing the link `..data` to another folder: all is read through where
that link leads at one moment, so that never half an old and half a new Secret is used.

Must not know: what a key looks like.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path

from chiasm_contract.tenants import TenantKeys

from chiasm_sidecar.tenants.keys import NAMES_ALLOWED, KeysRefused, is_name

_LINK = "..data"
_MAX_FILE_BYTES = 2**20  # a Secret has no more


class KeysUnread(KeysRefused):
    """The files could not be read this time; the same ones may be read the next time."""


@dataclass(frozen=True)
class Content:
    """What the mounted files say."""

    entries: dict[str, str]
    server_key: bytes


def stamp(paths: TenantKeys) -> Hashable:
    """A value that changes whenever what `read` returns may have changed."""
    return tuple(_signs(paths.keys_path)), tuple(_signs(paths.server_key_path))


def read(paths: TenantKeys) -> Content:
    """Keys by tenant, and the server key without the newline that editors add.

    Raises: KeysUnread naming the file that cannot be read, KeysRefused for what cannot be keys.
    """
    try:
        entries = (
            {file.name: _text(file) for file in _files(paths.keys_path)}
            if paths.keys_path.is_dir()
            else _lines(paths.keys_path)
        )
        return Content(entries, _bytes(paths.server_key_path).rstrip(b"\r\n"))
    except OSError as error:
        raise KeysUnread(f"{error.filename} cannot be read: {error.strerror}.") from error


def _signs(path: Path) -> Iterator[Hashable]:
    """What tells one state of a file, or of a folder's files, from another."""
    try:
        real = _mounted(path)
        is_plain_folder = real == path and path.is_dir()
        # What a mount's link leads to is never written again.
        for file in _files(path) if is_plain_folder else [real]:
            status = os.stat(file)
            yield str(file), status.st_ino, status.st_mtime_ns, status.st_size
    except OSError as error:
        yield error.errno


def _mounted(path: Path) -> Path:
    """Where a mounted Secret's content lies now; anything else is where it is."""
    linked = path / _LINK
    return linked.resolve() if linked.is_symlink() else path


def _files(folder: Path) -> list[Path]:
    """A file for each tenant; names that begin with .. are the mount's own."""
    real = _mounted(folder)
    return sorted(file for file in real.iterdir() if not file.name.startswith(".."))


def _lines(path: Path) -> dict[str, str]:
    """NAME=KEY lines; a name may come again with another key. Blank lines and # are skipped."""
    entries: dict[str, str] = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, key = line.partition("=")
        if not equals or not is_name(name):
            raise KeysRefused(f"{path}, line {number}: write NAME=KEY. {NAMES_ALLOWED}")
        entries[name] = f"{entries.get(name, '')}{key}\n"
    return entries


def _text(path: Path) -> str:
    try:
        return _bytes(path).decode("ascii")
    except UnicodeDecodeError:
        # Without its cause, which would show the bytes.
        raise KeysRefused(f"{path} holds other characters than ASCII.") from None


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise KeysRefused(f"{path} has more than {_MAX_FILE_BYTES} bytes.")
    return data
