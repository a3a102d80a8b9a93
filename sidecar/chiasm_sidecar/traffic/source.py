"""Reads the plan from where it is mounted.

Kubernetes replaces a mounted ConfigMap by pointing the link `..data` to another folder; the file is
a link through it, so that one open reads either the old plan or the new one, never half of each.

Must not know: what a plan says.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from pathlib import Path

from chiasm_sidecar.traffic.plan import PlanRefused

_MAX_FILE_BYTES = 2**20  # a ConfigMap has no more


class PlanUnread(PlanRefused):
    """The file could not be read this time; the same one may be read the next time."""


def stamp(path: Path) -> Hashable:
    """A value that changes whenever what `read` returns may have changed; None: no file."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.errno
    return os.path.realpath(path), status.st_ino, status.st_mtime_ns, status.st_size


def read(path: Path) -> bytes:
    """The file's bytes.

    Raises: PlanUnread when it cannot be read, PlanRefused when it is too large.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise PlanUnread(f"{path} cannot be read: {error.strerror}.") from error
    if len(data) > _MAX_FILE_BYTES:
        raise PlanRefused(f"{path} has more than {_MAX_FILE_BYTES} bytes.")
    return data
