"""Kernel settings of the whole machine that the kubelet changes when it starts.

They are noted before the first node starts and put back when the last cluster goes.
"""

from __future__ import annotations

from pathlib import Path

_CHANGED_BY_KUBELET = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
_ROOT = Path("/proc/sys")


def read_settings(root: Path = _ROOT) -> dict[str, str]:
    """The present values."""
    return {
        name: (root / name).read_text().strip()
        for name in _CHANGED_BY_KUBELET
        if (root / name).exists()
    }


def restore_settings(settings: dict[str, str], root: Path = _ROOT) -> None:
    """Put `settings` back; only those that differ are written."""
    for name, value in settings.items():
        path = root / name
        if path.exists() and path.read_text().strip() != value:
            path.write_text(value)
