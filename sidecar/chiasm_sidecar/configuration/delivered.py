"""Reads what is delivered as files: a mounted folder, or the JSON object that an agent renders; and
what the operator allows, and the key that all pods share.

Kubernetes replaces a mounted folder by pointing its link `..data` elsewhere: all is read through
where that leads at one moment. An agent replaces its file by renaming.

Must not know: what the entries are for.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from pathlib import Path

from chiasm_contract.configuration import Approvals, ConfigSource
from pydantic import ValidationError

from chiasm_sidecar.configuration.offers import MAX_BYTES, Entries, SourceFault, checked

log = logging.getLogger("chiasm.sidecar.configuration")

_LINK = "..data"
_NUM_TRIES = 3  # a folder that is replaced while it is read is read again


def read(source: ConfigSource) -> Entries:
    """The entries that lie there now.

    Raises: SourceFault with what is wrong, without a word of what was read.
    """
    if source.path is None:
        raise ValueError(f"source {source.name!r} is not delivered as files; this is a bug")
    for left in reversed(range(_NUM_TRIES)):
        try:
            rendered = source.kind == "rendered"
            return checked(_object(source.path) if rendered else _folder(source.path))
        except FileNotFoundError:
            if not left:
                raise SourceFault(f"{source.path} is not there") from None
        except OSError as error:
            words = os.strerror(error.errno) if error.errno else type(error).__name__
            raise SourceFault(f"{source.path} cannot be read: {words}") from None
    raise AssertionError("each try returns or raises")


class DigestKey:
    """The key by which pods name values alike, as it lies there now: it may come behind the pod, or
    be made anew. Without one it is a key of this process."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._own = secrets.token_bytes(32)
        if path is not None and not path.exists():
            log.warning("no digest key", extra={"fields": {"path": str(path)}})

    def __call__(self) -> bytes:
        """The key."""
        try:
            return (self._path.read_bytes() if self._path is not None else b"") or self._own
        except OSError:
            return self._own


def approvals(path: Path) -> Approvals:
    """What the operator allows now.

    Raises: SourceFault.
    """
    try:
        return Approvals.model_validate_json(_bytes(path))
    except OSError as error:
        raise SourceFault(f"{path} cannot be read, errno {error.errno}") from None
    except ValidationError:
        raise SourceFault(f"{path} is malformed") from None


def _folder(path: Path) -> dict[str, bytes]:
    linked = path / _LINK
    real = linked.resolve(strict=True) if linked.is_symlink() else path
    files = [file for file in real.iterdir() if not file.name.startswith("..")]
    entries = {file.name: _bytes(file) for file in files if file.is_file()}
    if not entries:
        raise SourceFault(f"{path} has no entries")
    return entries


def _object(path: Path) -> dict[str, bytes]:
    try:
        value = json.loads(_bytes(path))
    except ValueError:
        # Without its cause, which quotes what was read.
        raise SourceFault(f"{path} is no JSON") from None
    return entries_of(value, str(path))


def entries_of(value: object, where: str) -> dict[str, bytes]:
    """The entries of a JSON object: text as it is, everything else as JSON.

    Raises: SourceFault when it is no object, or an empty one.
    """
    if not isinstance(value, dict) or not value:
        raise SourceFault(f"{where} is no JSON object with entries")
    return {
        str(key): (each if isinstance(each, str) else json.dumps(each)).encode()
        for key, each in value.items()
    }


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise SourceFault(f"{path} has more than {MAX_BYTES} bytes")
    return data
