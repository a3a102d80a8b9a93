"""Keeps the cache folder from growing for ever: what nobody has used for a while is deleted."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

_SECONDS_PER_DAY = 86400
_KEPT_DAYS = 14


def use(entry: Path) -> None:
    """Note that the folder `entry` is used now."""
    entry.touch()


def prune(folder: Path, now: float | None = None) -> list[Path]:
    """Delete the folders in `folder` that were not used for two weeks; which they were."""
    oldest = (time.time() if now is None else now) - _KEPT_DAYS * _SECONDS_PER_DAY
    unused = [entry for entry in folder.glob("*") if entry.stat().st_mtime < oldest]
    for entry in unused:
        shutil.rmtree(entry, ignore_errors=True)
    return unused
