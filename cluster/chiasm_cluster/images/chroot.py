"""Runs one command inside a tree of layers: `python -m chiasm_cluster.images.chroot PLAN`.

Started by layers.py in fresh mount and process namespaces, so that whatever happens, no mount
and no process stays. Network access is the machine's own, as in an engine's build.

Standard library only, as in node/supervisor.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

_DEVICES = ("null", "zero", "full", "random", "urandom")


def enter(plan: dict[str, object]) -> None:
    """Mount everything and make the tree the root."""
    root = str(plan["root"])
    options = f"lowerdir={plan['lower']},upperdir={plan['upper']},workdir={plan['work']}"
    _mount("-t", "overlay", "overlay", "-o", options, root)
    _mount("-t", "proc", "proc", _folder(root, "/proc"))
    _mount("-t", "tmpfs", "tmpfs", _folder(root, "/dev"))
    _mount("-t", "tmpfs", "tmpfs", _folder(root, "/tmp"))  # noqa: S108 -- the image's own
    for device in _DEVICES:
        target = Path(root, "dev", device)
        target.touch()
        _mount("--bind", f"/dev/{device}", str(target))
    binds = plan["binds"]
    assert isinstance(binds, list)  # noqa: S101 -- written by layers.py
    for source, target in binds:
        if os.path.isdir(source):
            _mount("--bind", source, _folder(root, target))
        else:
            if not os.path.exists(root + target):
                Path(_folder(root, os.path.dirname(target)), os.path.basename(target)).touch()
            _mount("--bind", source, root + target)
    os.chroot(root)
    os.chdir("/")


def _folder(root: str, path: str) -> str:
    os.makedirs(root + path, exist_ok=True)
    return root + path


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def main() -> None:
    """Become the command of the plan."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    enter(plan)
    os.execve("/bin/sh", ["sh", "-e", "-c", plan["command"]], plan["environment"])  # noqa: S606


if __name__ == "__main__":
    main()
